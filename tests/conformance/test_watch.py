"""Watching: armed on entering, every change below, nothing from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddock import errors
from paddock.machine.base import FileChange, FileEvent
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


async def until(events: AsyncIterator[FileEvent], path: str, change: FileChange) -> list[FileEvent]:
    """The events up to this one."""
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            seen.append(event)
            if event == FileEvent(path, change):
                return seen
    raise AssertionError(f"ended without {path}: {seen}")


async def test_a_change_right_after_entering_is_never_missed(shell: Shell) -> None:
    for n in range(20):
        async with shell.machine.watch("/workspace") as events:
            await shell.put(f"/workspace/{n}", "x")
            await until(events, f"/workspace/{n}", FileChange.CREATED)


async def test_create_modify_and_remove_are_told_in_order(shell: Shell) -> None:
    async with shell.machine.watch("/workspace") as events:
        await shell.run("touch file; echo more >> file; rm file")
        seen = await until(events, "/workspace/file", FileChange.REMOVED)
    assert [event.change for event in seen] == sorted(
        (event.change for event in seen), key=[FileChange.CREATED, FileChange.MODIFIED, FileChange.REMOVED].index
    )
    assert {event.change for event in seen} == set(FileChange)


async def test_replacing_a_file_is_a_change_of_it_and_nothing_else(shell: Shell) -> None:
    await shell.put("/workspace/file", "old")
    async with shell.machine.watch("/workspace") as events:
        await shell.put("/workspace/file", "new")
        await shell.put("/workspace/marker", "")
        seen = await until(events, "/workspace/marker", FileChange.CREATED)
    assert {event.path for event in seen} == {"/workspace/file", "/workspace/marker"}
    assert FileEvent("/workspace/file", FileChange.MODIFIED) in seen


async def test_moving_is_a_removal_and_a_creation(shell: Shell) -> None:
    await shell.put("/workspace/a", "x")
    async with shell.machine.watch("/workspace") as events:
        await shell.machine.move("/workspace/a", "/workspace/b")
        seen = await until(events, "/workspace/b", FileChange.CREATED)
    assert FileEvent("/workspace/a", FileChange.REMOVED) in seen


async def test_below_is_told_only_when_asked_for(shell: Shell) -> None:
    await shell.machine.make_directory("/workspace/dir/sub")
    async with shell.machine.watch("/workspace") as events:
        await shell.put("/workspace/dir/sub/file", "x")
        await shell.put("/workspace/marker", "")
        seen = await until(events, "/workspace/marker", FileChange.CREATED)
    assert "/workspace/dir/sub/file" not in {event.path for event in seen}
    async with shell.machine.watch("/workspace", recursive=True) as events:
        await shell.put("/workspace/dir/sub/other", "x")
        await until(events, "/workspace/dir/sub/other", FileChange.CREATED)


async def test_directories_made_while_watching_are_watched_too(shell: Shell) -> None:
    async with shell.machine.watch("/workspace", recursive=True) as events:
        await shell.run("mkdir -p a/b/c && touch a/b/c/early")
        await until(events, "/workspace/a/b/c/early", FileChange.CREATED)
        await shell.run("touch a/b/c/late")
        await until(events, "/workspace/a/b/c/late", FileChange.CREATED)


async def test_a_directory_moved_in_and_out_is_followed(shell: Shell) -> None:
    await shell.run("mkdir -p /tmp/dir && touch /tmp/dir/file")
    async with shell.machine.watch("/workspace", recursive=True) as events:
        await shell.run("mv /tmp/dir . && touch dir/more")
        await until(events, "/workspace/dir/more", FileChange.CREATED)
        await shell.run("mv dir /tmp/dir && touch /tmp/dir/outside marker")
        seen = await until(events, "/workspace/marker", FileChange.CREATED)
    assert FileEvent("/workspace/dir", FileChange.REMOVED) in seen
    assert "/workspace/dir/outside" not in {event.path for event in seen}


async def test_a_symlink_is_not_watched_through(shell: Shell) -> None:
    await shell.run("mkdir /tmp/elsewhere && ln -s /tmp/elsewhere link")
    async with shell.machine.watch("/workspace", recursive=True) as events:
        await shell.run("touch /tmp/elsewhere/file marker")
        seen = await until(events, "/workspace/marker", FileChange.CREATED)
    assert {event.path for event in seen} == {"/workspace/marker"}


async def test_two_watchers_each_get_everything(shell: Shell) -> None:
    async with shell.machine.watch("/workspace") as one, shell.machine.watch("/workspace") as two:
        await shell.put("/workspace/file", "x")
        await until(one, "/workspace/file", FileChange.CREATED)
        await until(two, "/workspace/file", FileChange.CREATED)


async def test_only_a_directory_that_is_there_can_be_watched(shell: Shell) -> None:
    with pytest.raises(errors.PathNotFound):
        async with shell.machine.watch("/workspace/missing"):
            pass
    await shell.put("/workspace/file", "x")
    with pytest.raises(errors.PathConflict):
        async with shell.machine.watch("/workspace/file"):
            pass
