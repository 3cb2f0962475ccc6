"""Patches over several files: both forms, all or nothing."""

from __future__ import annotations

import pytest

from paddock.tools import patches
from paddock.tools.tool import ToolFailed
from tests.tools.workbench import Workbench

CODE = "class A:\n    def f(self):\n        return 1\n\n\nclass B:\n    def f(self):\n        return 1\n"


async def content(work: Workbench, name: str) -> str:
    return str((await work.does("read_file", path=work.at(name)))["content"])


async def test_files_are_added_updated_moved_and_deleted_together(work: Workbench) -> None:
    await work.put("code.py", CODE)
    await work.put("old.txt", "one\ntwo\n")
    await work.put("gone.txt", "x\n")
    done = await work.does(
        "apply_patch",
        patch=f"""*** Begin Patch
*** Add File: {work.at("new/file.txt")}
+first
+
+third
*** Update File: {work.at("code.py")}
@@ class B:
     def f(self):
-        return 1
+        return 2
*** Update File: {work.at("old.txt")}
*** Move to: {work.at("renamed.txt")}
@@
-one
+1
 two
*** Delete File: {work.at("gone.txt")}
*** End Patch""",
    )
    assert [each["action"] for each in done["files"]] == ["added", "updated", "updated", "deleted"]
    assert await content(work, "new/file.txt") == "first\n\nthird\n"
    assert await content(work, "code.py") == CODE[: CODE.rindex("1")] + "2\n"
    assert await content(work, "renamed.txt") == "1\ntwo\n"
    for name in ("old.txt", "gone.txt"):
        await work.fails("read_file", path=work.at(name))


async def test_one_part_that_does_not_fit_changes_nothing(work: Workbench) -> None:
    await work.put("a.txt", "a\n")
    await work.put("b.txt", "b\n")
    patch = f"*** Begin Patch\n*** Update File: {work.at('a.txt')}\n-a\n+A\n"
    wrong = f"*** Update File: {work.at('b.txt')}\n-not there\n+B\n*** End Patch"
    said = await work.fails("apply_patch", patch=patch + wrong)
    assert "not there" in said
    assert "Nothing was changed" in said
    assert await content(work, "a.txt") == "a\n"


async def test_what_was_written_is_taken_back_when_a_later_file_cannot_be(work: Workbench) -> None:
    await work.put("a.txt", "a\n")
    patch = f"*** Begin Patch\n*** Update File: {work.at('a.txt')}\n-a\n+A\n*** Add File: {work.at('n.txt')}\n+n\n"
    said = await work.fails("apply_patch", patch=patch + "*** Add File: /etc/not-mine\n+x\n*** End Patch")
    assert "/etc/not-mine" in said
    assert await content(work, "a.txt") == "a\n"
    await work.fails("read_file", path=work.at("n.txt"))


async def test_a_diff_of_git_is_applied(work: Workbench) -> None:
    await work.put("code.py", "".join(f"line {number}\n" for number in range(1, 30)))
    await work.shell(
        f"cd {work.folder} && git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm x && "
        "sed -i 's/^line 3$/line three/; s/^line 20$/line twenty/; /^line 25$/d' code.py && printf 'no newline' > n.txt"
        " && git add -A && git diff --cached > .git/d.patch && git reset -q --hard"
    )
    patch = (await work.does("run_command", command="cat .git/d.patch", cwd=work.folder))["stdout"]
    await work.shell(f"cd {work.folder} && git diff --exit-code")
    absolute = patch
    for name in (" a/code.py", " b/code.py", " a/n.txt", " b/n.txt"):
        absolute = absolute.replace(name, f" {work.at(name[3:])}")
    done = await work.does("apply_patch", patch=absolute)
    assert [(each["action"], each["added"], each["removed"]) for each in done["files"]] == [
        ("updated", 2, 3),
        ("added", 1, 0),
    ]
    text = await content(work, "code.py")
    assert ("line three\n" in text, "line twenty\n" in text, "line 25\n" in text) == (True, True, False)
    assert await content(work, "n.txt") == "no newline"


async def test_windows_line_endings_are_kept(work: Workbench) -> None:
    await work.put("win.txt", "one\r\ntwo\r\n")
    await work.does(
        "apply_patch", patch=f"--- {work.at('win.txt')}\n+++ {work.at('win.txt')}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )
    assert await content(work, "win.txt") == "one\r\n2\r\n"


async def test_context_may_differ_in_white_space_which_is_kept(work: Workbench) -> None:
    await work.put("tabs.py", "if x:\n\tfirst()  \n\tsecond()\n")
    hunk = "     first()\n-    second()\n+\tthird()\n"
    patch = f"*** Begin Patch\n*** Update File: {work.at('tabs.py')}\n{hunk}*** End Patch"
    await work.does("apply_patch", patch=patch)
    assert await content(work, "tabs.py") == "if x:\n\tfirst()  \n\tthird()\n"


async def test_an_existing_file_is_not_added_over(work: Workbench) -> None:
    path = await work.put("there.txt", "keep me")
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    assert "exists already" in await work.fails("apply_patch", patch=patch)
    patch = f"*** Begin Patch\n*** Update File: {work.at('none')}\n-a\n+b\n*** End Patch"
    assert "There is no file" in await work.fails("apply_patch", patch=patch)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("hello", "no patch"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Add File: a\n+x", "cut off"),
        ("*** Begin Patch\n+x\n*** End Patch", "before any file"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "begins with \\+"),
        ("*** Begin Patch\n*** Delete File: a\nx\n*** End Patch", "deleted file"),
        ("*** Begin Patch\n*** Update File: a\nx\n*** End Patch", "neither"),
        ("--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n a\n", "fewer lines"),
        ("--- /dev/null\n+++ /dev/null\n", "both sides"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "binary"),
    ],
)
def test_what_is_no_patch_is_said_so(patch: str, said: str) -> None:
    with pytest.raises(ToolFailed, match=said):
        patches.read(patch)
