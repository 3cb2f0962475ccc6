"""Reading, writing, editing, listing, moving and deleting files."""

from __future__ import annotations

import asyncio
import base64

from tests.tools.workbench import Workbench

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


async def test_a_file_is_read_with_line_numbers_and_told_where_to_read_on(work: Workbench) -> None:
    path = await work.put("lines.txt", "".join(f"line {number}\n" for number in range(1, 6)))
    outcome = await work.call("read_file", path=path, offset=2, limit=2)
    assert outcome.text.splitlines()[:2] == ["     2\tline 2", "     3\tline 3"]
    assert "read on with offset 4" in outcome.text
    assert outcome.data is not None
    assert (outcome.data["content"], outcome.data["total_lines"]) == ("line 2\nline 3\n", 5)
    rest = await work.does("read_file", path=path, offset=outcome.data["next_offset"])
    assert (rest["content"], rest["last_line"], rest["next_offset"]) == ("line 4\nline 5\n", 5, None)
    assert "no line 9" in await work.fails("read_file", path=path, offset=9)


async def test_a_relative_path_begins_at_the_workspace(work: Workbench) -> None:
    await work.put("a.txt", "here")
    relative = work.at("a.txt").removeprefix("/workspace/")
    assert (await work.does("read_file", path=relative))["content"] == "here"


async def test_an_empty_file_is_said_to_be_empty(work: Workbench) -> None:
    outcome = await work.call("read_file", path=await work.put("empty", ""))
    assert (outcome.text, outcome.failed) == ("The file is empty.", False)


async def test_unicode_comes_back_as_it_was_written(work: Workbench) -> None:
    text = "naïve 漢字 🐎\nzweite Zeile"
    path = await work.put("ünï.txt", text)
    assert (await work.does("read_file", path=path))["content"] == text


async def test_a_long_answer_stops_within_its_room_and_goes_on(work: Workbench) -> None:
    path = await work.put("long.txt", "x" * 99 + "\n")
    await work.shell(f"for i in $(seq 2000); do printf '%099d\\n' $i; done > {path}")
    first = await work.call("read_file", path=path)
    assert len(first.text) < 40_000
    assert first.data is not None
    assert first.data["total_lines"] == 2000
    following = await work.does("read_file", path=path, offset=first.data["next_offset"], limit=1)
    assert int(following["content"]) == first.data["last_line"] + 1


async def test_a_very_long_line_is_cut(work: Workbench) -> None:
    path = await work.put("wide.txt", "y" * 50_000 + "\nshort\n")
    data = await work.does("read_file", path=path)
    assert data["truncated"]
    assert data["total_lines"] == 2
    assert data["content"].endswith("short\n")
    assert len(data["content"]) < 3000


async def test_a_picture_is_shown(work: Workbench) -> None:
    path = work.at("pixel.png")
    await work.shell(f"mkdir -p {work.folder} && echo {base64.b64encode(PIXEL).decode()} | base64 -d > {path}")
    outcome = await work.call("read_file", path=path)
    [picture] = outcome.pictures
    assert (picture.data, picture.media_type) == (PIXEL, "image/png")


async def test_a_binary_file_is_refused_with_a_way_out(work: Workbench) -> None:
    path = work.at("binary")
    await work.shell(f"mkdir -p {work.folder} && printf 'a\\0b' > {path}")
    assert "run_command" in await work.fails("read_file", path=path)
    assert "run_command" in await work.fails("edit_file", path=path, old_string="a", new_string="b")


async def test_what_is_not_there_or_is_a_directory_is_said_so(work: Workbench) -> None:
    assert work.at("none") in await work.fails("read_file", path=work.at("none"))
    assert "list_directory" in await work.fails("read_file", path="/workspace")
    assert "list_directory" in await work.fails("edit_file", path="/workspace", old_string="a", new_string="b")


async def test_a_file_of_root_cannot_be_written(work: Workbench) -> None:
    assert "/etc/passwd" in await work.fails("write_file", path="/etc/passwd", content="")
    assert "/etc/passwd" in await work.fails("edit_file", path="/etc/passwd", old_string="root:x", new_string="a")


async def test_an_edit_must_fit_exactly_once(work: Workbench) -> None:
    path = await work.put("code.py", "a = 1\nb = 1\n")
    assert "2 times (lines 1, 2)" in await work.fails("edit_file", path=path, old_string="= 1", new_string="= 2")
    done = await work.does("edit_file", path=path, old_string="b = 1", new_string="b = 3")
    assert (done["replacements"], done["first_line"]) == (1, 2)
    done = await work.does("edit_file", path=path, old_string=" = ", new_string="=", replace_all=True)
    assert done["replacements"] == 2
    assert (await work.does("read_file", path=path))["content"] == "a=1\nb=3\n"
    assert "same" in await work.fails("edit_file", path=path, old_string="a", new_string="a")
    assert "write_file" in await work.fails("edit_file", path=path, old_string="", new_string="a")


async def test_an_edit_that_differs_in_white_space_is_told_where(work: Workbench) -> None:
    path = await work.put("indent.py", "def f():\n        return 1\n")
    said = await work.fails("edit_file", path=path, old_string="def f():\n    return 1", new_string="pass")
    assert "white space from what begins at line 1" in said


async def test_an_edit_keeps_windows_line_endings_marks_and_modes(work: Workbench) -> None:
    path = await work.put("win.txt", "\ufeffone\r\ntwo\r\nthree\r\n")
    await work.shell(f"chmod 750 {path}")
    await work.does("edit_file", path=path, old_string="one\ntwo", new_string="1\n2\n2½")
    assert (
        await work.shell(f"base64 -w0 {path}") == base64.b64encode("\ufeff1\r\n2\r\n2½\r\nthree\r\n".encode()).decode()
    )
    assert await work.shell(f"stat -c %a {path}") == "750\n"


async def test_an_edit_goes_through_a_symlink(work: Workbench) -> None:
    path = await work.put("real.txt", "old")
    await work.shell(f"ln -s real.txt {work.at('link.txt')}")
    await work.does("edit_file", path=work.at("link.txt"), old_string="old", new_string="new")
    assert await work.shell(f"test -L {work.at('link.txt')} && cat {path}") == "new"


async def test_edits_of_one_file_at_the_same_time_are_all_made(work: Workbench) -> None:
    path = await work.put("busy.txt", "".join(f"<{number}>\n" for number in range(12)))
    edits = [
        work.does("edit_file", path=path, old_string=f"<{number}>", new_string=f"[{number}]") for number in range(12)
    ]
    await asyncio.gather(*edits)
    assert (await work.does("read_file", path=path))["content"] == "".join(f"[{number}]\n" for number in range(12))


async def test_several_edits_are_made_together_or_not_at_all(work: Workbench) -> None:
    path = await work.put("multi.txt", "one two three")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "1 two", "new_string": "1 2"}]
    wrong = {"old_string": "four", "new_string": "4"}
    assert "Edit 3 of 3" in await work.fails("multi_edit", path=path, edits=[*edits, wrong])
    assert (await work.does("read_file", path=path))["content"] == "one two three"
    assert (await work.does("multi_edit", path=path, edits=edits))["replacements"] == 2
    assert (await work.does("read_file", path=path))["content"] == "1 2 three"


async def test_a_directory_is_listed_in_pages(work: Workbench) -> None:
    for name in ("b.txt", "a/inner.txt", ".hidden"):
        await work.put(name, "12345")
    outcome = await work.call("list_directory", path=work.folder)
    assert outcome.text.splitlines()[1:] == [".hidden (5 bytes)", "a/", "b.txt (5 bytes)"]
    deep = await work.does("list_directory", path=work.folder, depth=2, limit=2)
    assert (deep["total"], deep["next_offset"]) == (4, 2)
    rest = await work.does("list_directory", path=work.folder, depth=2, offset=2)
    assert [entry["path"] for entry in rest["entries"]] == [work.at("a/inner.txt"), work.at("b.txt")]


async def test_moving_never_overwrites_unless_asked(work: Workbench) -> None:
    old, other = await work.put("old", "old"), await work.put("other", "other")
    assert "overwrite" in await work.fails("move_file", source=old, destination=other)
    moved = await work.does("move_file", source=old, destination=work.at("new/place/name"))
    assert moved["destination"] == work.at("new/place/name")
    into = await work.does("move_file", source=other, destination=work.at("new"))
    assert into["destination"] == work.at("new/other")
    third = await work.put("third", "third")
    await work.does("move_file", source=third, destination=work.at("new/other"), overwrite=True)
    assert (await work.does("read_file", path=work.at("new/other")))["content"] == "third"
    assert "none" in await work.fails("move_file", source=work.at("none"), destination=work.at("x"))


async def test_a_tree_is_deleted_only_when_asked(work: Workbench) -> None:
    await work.put("tree/leaf", "")
    assert "recursive" in await work.fails("delete_file", path=work.at("tree"))
    await work.does("delete_file", path=work.at("tree"), recursive=True)
    assert work.at("tree") in await work.fails("delete_file", path=work.at("tree"))
    assert "not deleted" in await work.fails("delete_file", path="/workspace/.", recursive=True)
