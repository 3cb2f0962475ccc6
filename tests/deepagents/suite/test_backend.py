"""What the backend does beyond the standard suite: the same answers as deepagents' own scripts, and its edges."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Iterator

import pytest
from deepagents.backends.sandbox import BaseSandbox

from paddock.client import SyncSandboxClient
from paddock.deepagents import PaddockSandbox, files
from paddock.session import SyncSandboxSession

LINE = importlib.metadata.version("deepagents").rsplit(".", 1)[0]
TREE = """
cd /workspace && mkdir -p tree/a/b tree/.hidden/deep tree/node && cd tree
touch top.py .dot.py a/one.py a/two.txt a/b/three.py .hidden/deep/four.py node/x.js 'a/with space.py' 'a/[odd].py'
printf 'needle one\\nnothing\\nneedle: two\\n' > a/one.py
printf 'needle in text\\n' > a/two.txt
"""


class Stock(PaddockSandbox):
    """The same sandbox with the scripts of ``BaseSandbox``."""

    ls = BaseSandbox.ls
    read = BaseSandbox.read
    edit = BaseSandbox.edit
    glob = BaseSandbox.glob


@pytest.fixture(scope="module")
def session() -> Iterator[SyncSandboxSession]:
    with SyncSandboxSession.create(user_id="deepagents") as session:
        session.run(TREE)
        yield session


@pytest.fixture(scope="module")
def backend(session: SyncSandboxSession) -> PaddockSandbox:
    return PaddockSandbox.of(session)


@pytest.fixture(scope="module")
def stock(session: SyncSandboxSession) -> Stock:
    return Stock.of(session)


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.py", "**/*.py", "a/*.py", "a/**/*.py", "**/b/*", "*", "*/*", ".*", "**/.*", "[at]*", "a/[[]odd].py"),
        *("*.{py,js}", "**", "a/**", "../*", "/a/*.py", "nothing*", "a/", "**/deep/*.py", ".hidden/**/*.py"),
    ],
)
def test_glob_finds_what_the_script_finds(pattern: str, backend: PaddockSandbox, stock: Stock) -> None:
    assert backend.glob(pattern, "/workspace/tree") == stock.glob(pattern, "/workspace/tree")


def test_glob_with_links_finds_what_the_script_finds(backend: PaddockSandbox, stock: Stock) -> None:
    backend.execute("mkdir -p /workspace/links/real && cd /workspace/links && touch real/in.py && ln -s real alias")
    backend.execute(
        "cd /workspace/links && ln -s /etc/passwd out.py && ln -s real/in.py near.py && ln -s nowhere bad.py"
    )
    for pattern in ("*.py", "**/*.py", "alias/*.py"):
        assert backend.glob(pattern, "/workspace/links") == stock.glob(pattern, "/workspace/links"), pattern


@pytest.mark.parametrize("path", ["/workspace/tree", "/nowhere", "/workspace/tree/top.py", "/root"])
def test_ls_says_what_the_script_says(path: str, backend: PaddockSandbox, stock: Stock) -> None:
    ours, theirs = backend.ls(path), stock.ls(path)
    assert ours.error == theirs.error

    def plain(entries: list[dict[str, object]] | None) -> list[tuple[object, object]]:
        return sorted((entry["path"], entry["is_dir"]) for entry in entries or [])

    assert plain(ours.entries) == plain(theirs.entries)


@pytest.mark.parametrize(
    ("content", "offset", "limit"),
    [
        (b"one\ntwo\nthree\n", 0, 2000),
        (b"one\ntwo\nthree", 1, 1),
        (b"one\ntwo\nthree\n", 2, 1),
        (b"one\r\ntwo\rthree\n\n\n", 0, 2000),
        (b"one\ntwo\n", 7, 10),
        (b"", 0, 10),
        (b"\n", 0, 10),
        ("ünï\U0001f600\n".encode() * 3, 1, 5),
        (b"\xff\xfe\x00", 0, 10),
        (b"x" * 600_000, 0, 10),
        (b"0123456789\n" * 60_000, 0, 60_000),
        (b"0123456789\n" * 60_000, 59_999, 5),
    ],
)
def test_read_gives_what_the_script_gives(
    content: bytes, offset: int, limit: int, backend: PaddockSandbox, stock: Stock
) -> None:
    backend.upload_files([("/workspace/page", content)])
    assert backend.read("/workspace/page", offset, limit) == stock.read("/workspace/page", offset, limit)


@pytest.mark.parametrize("path", ["/nowhere", "/workspace", "/root/secret"])
def test_read_refuses_as_the_script_does(path: str, backend: PaddockSandbox, stock: Stock) -> None:
    assert backend.read(path).error == stock.read(path).error


@pytest.mark.parametrize(
    ("content", "old", "new", "everywhere"),
    [
        (b"a b a", "b", "c", False),
        (b"a b a", "a", "c", True),
        (b"a b a", "a", "c", False),
        (b"one\r\ntwo\r\nthree", "one\ntwo", "1\n2\n", False),
        (b"one\ntwo", "one\r\ntwo", "x\r\ny", False),
        (b"one", "two", "x", False),
        (b"\xff\xfe", "a", "b", False),
    ],
)
def test_edit_changes_what_the_script_changes(
    content: bytes, old: str, new: str, everywhere: bool, backend: PaddockSandbox, stock: Stock
) -> None:
    backend.upload_files([("/workspace/ours", content), ("/workspace/theirs", content)])
    ours = backend.edit("/workspace/ours", old, new, everywhere)
    theirs = stock.edit("/workspace/theirs", old, new, everywhere)
    assert (ours.error or "").replace("ours", "theirs") == (theirs.error or "")
    assert ours.occurrences == theirs.occurrences
    after = backend.download_files(["/workspace/ours", "/workspace/theirs"])
    assert after[0].content == after[1].content


def test_edit_keeps_the_mode_of_a_file(backend: PaddockSandbox) -> None:
    backend.execute("printf '#!/bin/sh\\necho old\\n' > /workspace/tool && chmod 755 /workspace/tool")
    assert backend.edit("/workspace/tool", "old", "new").error is None
    assert backend.execute("/workspace/tool").output == "new\n"


def test_a_file_too_large_to_fetch_is_read_and_edited_inside(
    backend: PaddockSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FETCHED", 1000)
    backend.upload_files([("/workspace/large", b"line\n" * 999 + b"last\n")])
    page = backend.read("/workspace/large", 999, 5)
    assert page.error is None and page.file_data["content"] == "last"
    assert backend.edit("/workspace/large", "last", "end").error is None
    assert backend.execute("tail -n 1 /workspace/large").output == "end\n"


def test_output_comes_in_the_order_in_which_it_was_written(backend: PaddockSandbox) -> None:
    ran = backend.execute("echo 1; echo 2 >&2; echo 3; exit 5")
    assert (ran.output, ran.exit_code, ran.truncated) == ("1\n2\n3\n", 5, False)


def test_more_output_than_one_answer_holds_comes_whole(backend: PaddockSandbox) -> None:
    ran = backend.execute("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert len(ran.output) == 3_000_004 and ran.output.endswith("end\n") and not ran.truncated


def test_a_command_longer_than_an_argument_runs(backend: PaddockSandbox) -> None:
    ran = backend.execute(f"wc -c <<'EOF'\n{'x' * 300_000}\nEOF")
    assert (ran.output.strip(), ran.exit_code) == ("300001", 0)
    assert backend.execute("ls -A /tmp | grep paddock-command").output == ""


def test_a_command_that_takes_too_long_is_ended(backend: PaddockSandbox) -> None:
    ran = backend.execute("echo begun; sleep 600", timeout=1)
    assert ran.exit_code == 124
    assert ran.output == "begun\nCommand timed out after 1 seconds"


def test_a_command_that_cannot_be_is_an_answer(backend: PaddockSandbox) -> None:
    assert backend.execute("echo \0").exit_code == 126


def test_coroutines_run_side_by_side(backend: PaddockSandbox) -> None:
    """More than a pool of threads would hold: each waits until the last one has come."""

    async def meet() -> list[object]:
        count = 40
        wait = f'until [ "$(ls /tmp/met | wc -l)" -ge {count} ]; do sleep 0.2; done'
        await backend.aexecute("rm -rf /tmp/met; mkdir /tmp/met")
        many = (backend.aexecute(f"touch /tmp/met/{number}; {wait}", timeout=60) for number in range(count))
        try:
            return list(await asyncio.gather(*many))
        finally:
            await backend.aclose()

    assert {ran.exit_code for ran in asyncio.run(meet())} == {0}


def test_transfers_keep_their_order_and_one_failure_is_one_failure(backend: PaddockSandbox) -> None:
    async def move() -> None:
        sent = await backend.aupload_files([("/workspace/t/1", b"1"), ("relative", b""), ("/workspace/t/2", b"2")])
        assert [each.error for each in sent] == [None, "invalid_path", None]
        got = await backend.adownload_files(["/workspace/t/2", "/workspace/t", "/workspace/none", "/workspace/t/1"])
        assert [each.content for each in got] == [b"2", None, None, b"1"]
        assert [each.error for each in got] == [None, "is_directory", "file_not_found", None]
        await backend.aclose()

    asyncio.run(move())


@pytest.mark.skipif(LINE == "0.6", reason="deepagents 0.6 cannot delete")
def test_delete_takes_files_and_trees(backend: PaddockSandbox) -> None:
    backend.execute("mkdir -p /workspace/gone/deep && touch /workspace/gone/deep/file")
    assert backend.delete("/workspace/gone").path == "/workspace/gone"
    assert backend.delete("/workspace/gone").error == "Error: '/workspace/gone' not found"
    assert backend.execute("ls -d /workspace/gone").exit_code != 0


def test_writing_where_something_is(backend: PaddockSandbox) -> None:
    backend.write("/workspace/written", "old")
    again = backend.write("/workspace/written", "new")
    content = backend.download_files(["/workspace/written"])[0].content
    if LINE == "0.6":
        assert "already exists" in again.error and content == b"old"
    else:
        assert again.error is None and content == b"new"


def test_grep_finds_literally(backend: PaddockSandbox) -> None:
    found = backend.grep("needle", "/workspace/tree", "*.py")
    assert [(match["line"], match["text"]) for match in found.matches] == [(1, "needle one"), (3, "needle: two")]


def test_a_paused_sandbox_wakes_for_the_backend(backend: PaddockSandbox) -> None:
    with SyncSandboxClient() as client:
        client.pause_sandbox(backend.id)
        assert backend.execute("echo awake").output == "awake\n"
