"""The logbook: what was answered for is never lost, and never counted twice, wherever the server died."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.lifecycle import journal
from paddock.lifecycle.journal_file import JournalFile
from tests.lifecycle.test_journal import Commits, use
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE_S
from tests.support.world import World


@pytest.fixture
def slow_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing gets into the database unless somebody asks for it."""
    monkeypatch.setattr(journal, "_GATHER_S", 600.0)


async def commands(world: World, sandbox_id: str) -> int:
    total, _ = await world.context.usage.of_sandbox(world.alice, sandbox_id)
    return total.commands


def notes(home: Path) -> list[str]:
    return [line for path in sorted((home / "notes").glob("*.notes")) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("slow_writer")
async def test_what_was_noted_but_not_written_is_carried_over_after_a_crash(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    for _ in range(3):
        await use(world, sandbox_id, bytes_in=5, bytes_out=7)
    assert len(notes(world.home)) == 3
    await world.restart()
    total, _ = await world.context.usage.of_sandbox(world.alice, sandbox_id)
    assert (total.commands, total.bytes_in, total.bytes_out) == (3, 15, 21)
    finished = [event for event in await world.events(sandbox_id) if event.type == "command.finished"]
    assert [event.data for event in finished] == [{"exit_code": 0}] * 3
    assert [event.seq for event in await world.events(sandbox_id)] == list(range(1, 6))
    assert notes(world.home) == []


async def test_what_was_written_before_the_crash_is_not_counted_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead between the commit and the moment when the file would have been emptied."""
    monkeypatch.setattr(JournalFile, "settle", lambda self, number: None)
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await use(world, sandbox_id)
    await world.context.journal.flush()
    monkeypatch.setattr(journal, "_GATHER_S", 600.0)
    await use(world, sandbox_id)
    assert len(notes(world.home)) == 2
    await world.restart()
    assert await commands(world, sandbox_id) == 2
    await world.restart()
    assert await commands(world, sandbox_id) == 2


@pytest.mark.usefixtures("slow_writer")
async def test_a_crash_while_carrying_over_carries_over_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead after the transaction and before the file was removed: the file is found again, and known."""
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await use(world, sandbox_id)
    await world.crash()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            await world.start()
    await world.context.store.close()
    await world.start()
    assert await commands(world, sandbox_id) == 1
    assert notes(world.home) == []


@pytest.mark.usefixtures("slow_writer")
async def test_the_line_that_the_crash_cut_short_is_left_out(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    await use(small_world, sandbox_id)
    (path,) = (small_world.home / "notes").glob("*.notes")
    with path.open("a") as file:
        file.write('[2, {"sandbox_id": "al')
    await small_world.restart()
    assert await commands(small_world, sandbox_id) == 1


async def test_the_file_is_empty_once_everything_is_written_and_gone_after_a_clean_stop(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    for _ in range(5):
        await use(small_world, sandbox_id)
        await small_world.context.journal.settled(sandbox_id)
        assert notes(small_world.home) == []
    await small_world.stop()
    assert list((small_world.home / "notes").iterdir()) == []
    await small_world.start()


async def test_notes_that_cannot_be_written_make_the_caller_wait_for_the_database(
    small_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    commits = Commits(small_world, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        await use(small_world, sandbox_id)
    assert commits.count == 1
    await small_world.restart()
    assert await commands(small_world, sandbox_id) == 1


def test_half_a_line_on_a_full_disk_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = JournalFile(tmp_path, "one")
    book.open()
    write = os.write
    assert book.note({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        assert not book.note({"n": 2})
    assert book.note({"n": 3})
    os.close(book._fd or -1)
    (left,) = JournalFile(tmp_path, "two").leftovers()
    assert left.notes == [(1, {"n": 1}), (2, {"n": 3})]


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("a file where the folder should be")
    book = JournalFile(tmp_path / "notes", "one")
    book.open()
    assert not book.note({})
    book.close()


@pytest.mark.usefixtures("slow_writer")
async def test_a_use_does_not_wait_for_the_database(small_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    commits = Commits(small_world, monkeypatch)
    for _ in range(20):
        await use(small_world, sandbox_id)
    assert commits.count == 0
    assert await commands(small_world, sandbox_id) == 20
    assert commits.count == 1


@pytest.mark.usefixtures("slow_writer")
class TestReadersSeeWhatWasAnswered:
    async def test_events(self, small_world: World) -> None:
        sandbox_id = (await small_world.create()).sandbox.sandbox_id
        await use(small_world, sandbox_id)
        page = await small_world.context.events.page(small_world.alice, sandbox_id, 0, 100)
        assert page[-1].type == "command.finished"

    async def test_a_stream_of_events(self, small_world: World) -> None:
        sandbox_id = (await small_world.create()).sandbox.sandbox_id
        stream = small_world.context.events.stream(small_world.alice, sandbox_id, 2)
        assert await anext(stream) is None
        await use(small_world, sandbox_id)
        async with asyncio.timeout(PATIENCE_S):
            while (event := await anext(stream)) is None:
                pass
        assert event.type == "command.finished"

    async def test_usage_of_users(self, small_world: World) -> None:
        sandbox_id = (await small_world.create()).sandbox.sandbox_id
        await use(small_world, sandbox_id)
        total, _ = await small_world.context.usage.of_users(small_world.alice, user_id=None, since=None, until=None)
        assert total.commands == 1

    @pytest.mark.parametrize("act", ["pause", "delete"])
    async def test_what_happened_first_stands_first(self, small_world: World, act: str) -> None:
        sandbox_id = (await small_world.create()).sandbox.sandbox_id
        await use(small_world, sandbox_id)
        await getattr(small_world.context.controller, act)(small_world.alice, sandbox_id)
        types = await small_world.event_types(sandbox_id)
        assert types[2:4] == ["command.finished", f"{act.removesuffix('e')}ing"]


@pytest.mark.postgres
class TestSeveralServers:
    @pytest.fixture
    async def world(self, tmp_path: Path, postgres: Postgres) -> AsyncIterator[World]:
        world = World(tmp_path, await postgres.new_database())
        await world.start()
        await world.make_accounts()
        yield world
        await world.end()

    @pytest.mark.usefixtures("slow_writer")
    async def test_the_notes_of_a_living_server_are_left_alone(self, world: World) -> None:
        sandbox_id = (await world.create()).sandbox.sandbox_id
        await use(world, sandbox_id)
        other = world.another_house()
        await other.open(loops=False)
        await other.reconciler.sweep()
        assert len(notes(world.home)) == 1
        await other.close()
        assert await commands(world, sandbox_id) == 1

    @pytest.mark.usefixtures("slow_writer")
    async def test_those_of_a_dead_one_are_carried_over_by_who_lives_on(self, world: World) -> None:
        sandbox_id = (await world.create()).sandbox.sandbox_id
        other = world.another_house()
        await other.open(loops=False)
        await use(world, sandbox_id)
        await world.crash()
        await other.reconciler.sweep()
        total, _ = await other.usage.of_sandbox(world.alice, sandbox_id)
        assert total.commands == 1
        assert notes(world.home) == []
        await other.close()
        await world.start()
