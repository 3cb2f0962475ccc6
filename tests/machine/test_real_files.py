"""Files through the real agent: every size and kind, the rights of a user, and memory that stays flat."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.base import FileChange
from tests.support.waiting import PATIENCE_S


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize("size", [0, 1, 255 * 1024, 256 * 1024, 256 * 1024 + 1, 5 << 20])
async def test_files_of_every_size_come_and_go_whole(machine: AgentMachine, folder: Path, size: int) -> None:
    content = os.urandom(size)
    info = await machine.write_file(str(folder / "file"), once(content))
    assert (info.size, (folder / "file").read_bytes()) == (size, content)
    read = [piece async for piece in machine.read_file(str(folder / "file"))]
    assert b"".join(read) == content
    assert all(read)


async def test_files_without_a_size_are_read_too(machine: AgentMachine) -> None:
    content = b"".join([piece async for piece in machine.read_file("/proc/meminfo")])
    assert content.count(b"\n") > 1


async def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(machine: AgentMachine, folder: Path) -> None:
    path = folder / "file"
    path.write_bytes(b"a" * 100)
    given = b""
    async for piece in machine.read_file(str(path)):
        given += piece
        if len(given) == 100:
            with path.open("ab") as file:
                file.write(b"b" * 100)
    assert given == b"a" * 100 + b"b" * 100


async def test_permissions_can_be_changed(machine: AgentMachine, folder: Path) -> None:
    (folder / "file").touch()
    assert (await machine.chmod(str(folder / "file"), 0o751)).mode == 0o751
    assert (folder / "file").stat().st_mode & 0o7777 == 0o751
    with pytest.raises(errors.PathNotFound):
        await machine.chmod(str(folder / "missing"), 0o600)


async def test_every_file_operation_refuses_a_user_that_is_not_there(machine: AgentMachine, folder: Path) -> None:
    user, path = "nobody-here", str(folder)

    async def read() -> None:
        async for _ in machine.read_file(path, user=user):
            pass

    async def watch() -> None:
        async with machine.watch(path, user=user):
            pass

    for act in (
        machine.stat(path, user=user),
        machine.list_directory(path, user=user),
        read(),
        machine.write_file(f"{path}/file", once(b""), user=user),
        machine.make_directory(f"{path}/dir", user=user),
        machine.move(path, f"{path}-moved", user=user),
        machine.remove(path, True, user=user),
        watch(),
        machine.chmod(path, 0o700, user),
    ):
        with pytest.raises(errors.Invalid):
            await act
    assert list(folder.iterdir()) == []


async def test_a_failed_move_says_which_path_is_to_blame(machine: AgentMachine, folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(errors.PathNotFound, match="missing"):
        await machine.move(str(folder / "missing"), str(folder / "there"))
    with pytest.raises(errors.PathNotFound, match="no/where"):
        await machine.move(str(folder / "file"), str(folder / "no/where"))


async def test_a_directory_that_is_removed_ends_its_watch(machine: AgentMachine, folder: Path) -> None:
    async with machine.watch(str(folder)) as events, asyncio.timeout(PATIENCE_S):
        folder.rmdir()
        seen = [event async for event in events]
    assert (seen[-1].path, seen[-1].change) == (str(folder), FileChange.REMOVED)


@pytest.mark.slow
async def test_a_gigabyte_up_and_down_keeps_memory_flat(machine: AgentMachine, folder: Path) -> None:
    block = os.urandom(1 << 20)

    async def content() -> AsyncIterator[bytes]:
        for _ in range(1024):
            for at in range(0, len(block), 1 << 16):
                yield block[at : at + (1 << 16)]

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    info = await machine.write_file(str(folder / "large"), content())
    assert info.size == 1 << 30
    received = 0
    async for piece in machine.read_file(str(folder / "large")):
        assert piece == block[received % (1 << 20) :][: len(piece)]
        received += len(piece)
    assert received == 1 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
