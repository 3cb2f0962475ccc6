"""Files: every byte in and out, each wrong kind its own error, old or new but never half."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator

import pytest

from paddock import errors
from paddock.machine.base import FileType, Machine
from tests.conformance.shell import Shell, chunks
from tests.support.waiting import PATIENCE_S

EVERY_BYTE = bytes(range(256)) * 3


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("data", [b"", b"x", EVERY_BYTE, "ü\n".encode()], ids=["empty", "one", "binary", "text"])
async def test_what_is_written_is_what_is_read(shell: Shell, data: bytes, atomic: bool) -> None:
    await shell.put("/workspace/file", "an older and longer content" * 100, atomic=atomic)
    await shell.put("/workspace/file", data, atomic=atomic)
    assert await shell.get("/workspace/file") == data
    assert (await shell.machine.stat("/workspace/file")).size == len(data)


async def test_commands_and_file_operations_see_the_same_files(shell: Shell) -> None:
    await shell.put("/workspace/from outside", EVERY_BYTE)
    assert (
        await shell.run("cat 'from outside'; echo more >> 'from outside'; rm -f x; echo hi > inside")
    ).out == EVERY_BYTE
    assert await shell.get("/workspace/inside") == b"hi\n"
    assert await shell.get("/workspace/from outside") == EVERY_BYTE + b"more\n"
    assert (await shell.run("rm 'from outside' && stat -c %U inside")).text == "user"


async def test_sixty_four_megabytes_stream_through(shell: Shell) -> None:
    block = random.Random(7).randbytes(1 << 20)
    expected = hashlib.sha256()

    async def blocks() -> AsyncIterator[bytes]:
        for n in range(64):
            data = n.to_bytes(4, "big") + block[4:]
            expected.update(data)
            yield data

    info = await shell.machine.write_file("/workspace/large", blocks())
    assert info.size == 64 << 20
    actual = hashlib.sha256()
    largest = 0
    async for chunk in shell.machine.read_file("/workspace/large"):
        largest = max(largest, len(chunk))
        actual.update(chunk)
    assert actual.digest() == expected.digest()
    assert largest <= 4 << 20
    assert (await shell.run("sha256sum large | cut -d' ' -f1")).text == expected.hexdigest()


async def test_a_slice_of_a_file(shell: Shell) -> None:
    await shell.put("/workspace/file", b"0123456789")
    assert await shell.get("/workspace/file", 3) == b"3456789"
    assert await shell.get("/workspace/file", 3, 4) == b"3456"
    assert await shell.get("/workspace/file", 3, 0) == b""
    assert await shell.get("/workspace/file", 8, 99) == b"89"
    assert await shell.get("/workspace/file", 99) == b""


async def test_missing_parents_are_made(shell: Shell) -> None:
    info = await shell.machine.write_file("/workspace/a/b/c.txt", chunks(b"deep"))
    assert (info.path, info.name, info.type, info.size) == ("/workspace/a/b/c.txt", "c.txt", FileType.FILE, 4)
    assert (await shell.run("cat a/b/c.txt; touch a/b/mine")).text == "deep"


async def test_modes_are_set_and_kept(shell: Shell) -> None:
    await shell.put("/workspace/run.sh", "#!/bin/sh\necho ran", mode=0o755)
    assert (await shell.machine.stat("/workspace/run.sh")).mode == 0o755
    await shell.put("/workspace/run.sh", "#!/bin/sh\necho again")
    assert (await shell.machine.stat("/workspace/run.sh")).mode == 0o755
    assert (await shell.run("./run.sh")).text == "again"
    await shell.put("/workspace/plain", "")
    assert (await shell.machine.stat("/workspace/plain")).mode == 0o644


async def test_a_failing_atomic_write_leaves_the_old_file_and_nothing_else(shell: Shell) -> None:
    await shell.put("/workspace/file", "old")

    async def broken() -> AsyncIterator[bytes]:
        yield b"new and"
        raise ConnectionResetError("the sender went away")

    with pytest.raises(ConnectionResetError):
        await shell.machine.write_file("/workspace/file", broken())
    assert await shell.get("/workspace/file") == b"old"
    assert (await shell.run("ls -A")).text == "file"


async def test_a_cancelled_atomic_write_leaves_the_old_file_and_nothing_else(shell: Shell) -> None:
    await shell.put("/workspace/file", "old")
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"new and"
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(shell.machine.write_file("/workspace/file", endless()))
    await begun.wait()
    assert await shell.get("/workspace/file") == b"old"
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await shell.get("/workspace/file") == b"old"
    assert (await shell.run("ls -A")).text == "file"


async def test_a_reader_never_sees_half_of_an_atomic_write(shell: Shell) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"ab"]
    await shell.put("/workspace/file", contents[0])

    async def write() -> None:
        for n in range(30):
            await shell.put("/workspace/file", contents[n % 2])

    writing = asyncio.create_task(write())
    while not writing.done():
        assert await shell.get("/workspace/file") in contents
    await writing


async def test_stat_tells_kind_size_and_owner(shell: Shell) -> None:
    await shell.run("echo hello > file; ln -s file link; ln -s /nowhere dangling; mkdir dir; mkfifo fifo")
    stat = shell.machine.stat
    file = await stat("/workspace/file")
    assert (file.type, file.size, file.owner, file.group, file.symlink_target) == (
        FileType.FILE, 6, "user", "user", None,
    )  # fmt: skip
    link = await stat("/workspace/link")
    assert (link.type, link.symlink_target) == (FileType.SYMLINK, "file")
    assert (await stat("/workspace/dangling")).symlink_target == "/nowhere"
    followed = await stat(link.path, follow=True)
    assert (followed.type, followed.size, followed.symlink_target) == (FileType.FILE, file.size, None)
    with pytest.raises(errors.PathNotFound):
        await stat("/workspace/dangling", follow=True)
    assert (await stat("/workspace/dir")).type is FileType.DIRECTORY
    assert (await stat("/workspace/fifo")).type is FileType.OTHER
    assert (await stat("/")).type is FileType.DIRECTORY


async def test_listing_goes_as_deep_as_asked_and_not_through_symlinks(shell: Shell) -> None:
    await shell.run("mkdir -p a/b/c; touch z a/1 a/b/2 a/b/c/3; ln -s a link")
    listed = shell.machine.list_directory
    assert [entry.path for entry in await listed("/workspace")] == [f"/workspace/{n}" for n in ("a", "link", "z")]
    assert [entry.path.removeprefix("/workspace/") for entry in await listed("/workspace", 3)] == [
        "a", "a/1", "a/b", "a/b/2", "a/b/c", "link", "z",
    ]  # fmt: skip
    assert [entry.path for entry in await listed("/workspace/a/b/c", 9)] == ["/workspace/a/b/c/3"]
    kinds = {entry.name: entry.type for entry in await listed("/workspace")}
    assert kinds == {"a": FileType.DIRECTORY, "link": FileType.SYMLINK, "z": FileType.FILE}


async def test_listing_the_root_shows_the_workspace(machine: Machine) -> None:
    assert "/workspace" in [entry.path for entry in await machine.list_directory("/")]


async def test_a_name_that_is_no_text_does_not_break_a_listing(shell: Shell) -> None:
    await shell.run(r"touch $(printf 'a\377b') plain")
    names = [entry.name for entry in await shell.machine.list_directory("/workspace")]
    assert "plain" in names and len(names) == 2
    for name in names:
        name.encode()


async def test_making_a_directory_tells_whether_it_was_there(machine: Machine) -> None:
    assert await machine.make_directory("/workspace/x/y/z") is True
    assert await machine.make_directory("/workspace/x/y/z") is False
    assert await machine.make_directory("/workspace/x") is False
    assert (await machine.stat("/workspace/x/y/z")).type is FileType.DIRECTORY


async def test_moving_renames_files_and_directories(shell: Shell) -> None:
    await shell.put("/workspace/dir/file", "content")
    moved = await shell.machine.move("/workspace/dir/file", "/workspace/dir/other")
    assert moved.path == "/workspace/dir/other"
    await shell.machine.move("/workspace/dir", "/workspace/new")
    assert await shell.get("/workspace/new/other") == b"content"
    with pytest.raises(errors.PathNotFound):
        await shell.machine.stat("/workspace/dir")


async def test_moving_onto_a_file_replaces_it(shell: Shell) -> None:
    await shell.put("/workspace/a", "a")
    await shell.put("/workspace/b", "b")
    await shell.machine.move("/workspace/a", "/workspace/b")
    assert await shell.get("/workspace/b") == b"a"


async def test_moving_a_symlink_moves_the_link_itself(shell: Shell) -> None:
    await shell.run("echo x > file; ln -s file link")
    await shell.machine.move("/workspace/link", "/workspace/moved")
    assert (await shell.machine.stat("/workspace/moved")).symlink_target == "file"
    assert await shell.get("/workspace/file") == b"x\n"


async def test_impossible_moves_are_told_apart(shell: Shell) -> None:
    await shell.put("/workspace/dir/file", "x")
    move = shell.machine.move
    with pytest.raises(errors.PathNotFound):
        await move("/workspace/missing", "/workspace/x")
    with pytest.raises(errors.PathNotFound):
        await move("/workspace/dir/file", "/workspace/no/such/place")
    with pytest.raises(errors.PathConflict):
        await move("/workspace/dir/file", "/workspace/dir")
    with pytest.raises((errors.Invalid, errors.PathConflict)):
        await move("/workspace/dir", "/workspace/dir/below")
    with pytest.raises(errors.PathDenied):
        await move("/", "/workspace/root")
    assert await shell.get("/workspace/dir/file") == b"x"


async def test_removing_files_links_and_trees(shell: Shell) -> None:
    await shell.run("mkdir -p tree/a/b empty; touch tree/a/b/c tree/x file; ln -s tree link; ln -s ../../home tree/out")
    await shell.machine.remove("/workspace/file")
    await shell.machine.remove("/workspace/empty")
    await shell.machine.remove("/workspace/link", recursive=True)
    assert (await shell.run("ls -A . tree/a")).text.split() == [".:", "tree", "tree/a:", "b"]
    await shell.machine.remove("/workspace/tree", recursive=True)
    assert await shell.machine.list_directory("/workspace") == []
    assert (await shell.run("ls -d /home/user")).text == "/home/user"


async def test_removing_a_very_deep_tree(shell: Shell) -> None:
    script = "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    assert (await shell.run(f'mkdir deep; cd deep; python3 -c "{script}"')).code == 0
    await shell.machine.remove("/workspace/deep", recursive=True)
    assert await shell.machine.list_directory("/workspace") == []


async def test_impossible_removals_are_told_apart(shell: Shell) -> None:
    await shell.put("/workspace/dir/file", "x")
    with pytest.raises(errors.PathConflict):
        await shell.machine.remove("/workspace/dir")
    with pytest.raises(errors.PathNotFound):
        await shell.machine.remove("/workspace/missing", recursive=True)
    with pytest.raises(errors.PathDenied):
        await shell.machine.remove("/", recursive=True)
    assert await shell.get("/workspace/dir/file") == b"x"


async def test_what_is_not_there_is_not_found(shell: Shell) -> None:
    for path in ("/workspace/missing", "/workspace/missing/below"):
        with pytest.raises(errors.PathNotFound):
            await shell.get(path)
        with pytest.raises(errors.PathNotFound):
            await shell.machine.stat(path)
        with pytest.raises(errors.PathNotFound):
            await shell.machine.list_directory(path)


async def test_a_directory_is_not_a_file_and_a_file_not_a_directory(shell: Shell) -> None:
    await shell.put("/workspace/dir/file", "x")
    with pytest.raises(errors.PathConflict):
        await shell.get("/workspace/dir")
    for atomic in (True, False):
        with pytest.raises(errors.PathConflict):
            await shell.put("/workspace/dir", "x", atomic=atomic)
        with pytest.raises(errors.PathConflict):
            await shell.put("/workspace/dir/file/below", "x", atomic=atomic)
    with pytest.raises(errors.PathConflict):
        await shell.machine.list_directory("/workspace/dir/file")
    with pytest.raises(errors.PathConflict):
        await shell.machine.make_directory("/workspace/dir/file")
    with pytest.raises(errors.PathConflict):
        await shell.machine.make_directory("/workspace/dir/file/below")
    with pytest.raises(errors.PathConflict):
        await shell.machine.stat("/workspace/dir/file/below")


async def test_a_fifo_does_not_hang_anything(shell: Shell) -> None:
    await shell.run("mkfifo fifo")
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(errors.PathConflict):
            await shell.get("/workspace/fifo")
        for atomic in (True, False):
            with pytest.raises(errors.PathConflict):
                await shell.put("/workspace/fifo", "x", atomic=atomic)
        await shell.machine.remove("/workspace/fifo")


@pytest.mark.parametrize(
    "path", ["relative", "", "/workspace/../etc/passwd", "/workspace/a\0b", "/workspace/" + "x" * 300]
)
async def test_a_path_that_means_nothing_plain_is_refused(shell: Shell, path: str) -> None:
    with pytest.raises(errors.Invalid):
        await shell.get(path)
    with pytest.raises(errors.Invalid):
        await shell.put(path, "x")
    with pytest.raises(errors.Invalid):
        await shell.machine.stat(path)


@pytest.mark.parametrize("path", ["/usr/bin/x", "/proc/x", "/dev/x", "/bin/x"])
async def test_the_system_cannot_be_written_to(shell: Shell, path: str) -> None:
    with pytest.raises(errors.PathDenied):
        await shell.put(path, "x")
    with pytest.raises(errors.PathDenied):
        await shell.machine.make_directory(path)
    with pytest.raises(errors.PathDenied):
        await shell.machine.remove("/usr", recursive=True)
    assert (await shell.run("echo fine")).text == "fine"


async def test_awkward_names_are_just_names(shell: Shell) -> None:
    names = ["with space", "new\nline", "-rf", "ü😀", "$(id)", "'\"", "a" * 255]
    for name in names:
        await shell.put(f"/workspace/{name}", name)
    assert {entry.name for entry in await shell.machine.list_directory("/workspace")} == set(names)
    for name in names:
        assert await shell.get(f"/workspace/{name}") == name.encode()
        await shell.machine.remove(f"/workspace/{name}")
