"""The journal: safe before the answer, in few transactions, and patient with a database that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import StoreUnavailable
from tests.support.waiting import PATIENCE_S
from tests.support.world import World


class Commits:
    """Counts write transactions, and can refuse them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.away = False
        original = world.context.store.write

        @asynccontextmanager
        async def write() -> AsyncIterator[AsyncConnection]:
            if self.away:
                raise StoreUnavailable("away")
            self.count += 1
            async with original() as connection:
                yield connection

        monkeypatch.setattr(world.context.store, "write", write)


async def use(world: World, sandbox_id: str, **counts: int) -> None:
    async with world.context.controller.use(world.alice, sandbox_id) as using:
        await using.record(commands=1, event=("command.finished", {"exit_code": 0}), **counts)


async def test_what_was_recorded_survives_a_crash(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await use(world, sandbox_id, bytes_in=5, bytes_out=7)
    await world.restart()
    total, _ = await world.context.usage.of_sandbox(world.alice, sandbox_id)
    assert (total.commands, total.bytes_in, total.bytes_out) == (1, 5, 7)
    assert (await world.event_types(sandbox_id))[-1] == "command.finished"


async def test_many_uses_at_once_share_their_commits(small_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    await use(small_world, sandbox_id)
    commits = Commits(small_world, monkeypatch)
    await asyncio.gather(*(use(small_world, sandbox_id) for _ in range(100)))
    assert commits.count < 20
    total, _ = await small_world.context.usage.of_sandbox(small_world.alice, sandbox_id)
    assert total.commands == 101


async def test_while_the_database_is_away_nothing_is_lost_or_held_up(
    small_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    commits = Commits(small_world, monkeypatch)
    commits.away = True
    async with asyncio.timeout(PATIENCE_S):  # the database is not back before
        for _ in range(3):
            await use(small_world, sandbox_id)
    commits.away = False
    assert await small_world.context.journal.flush()
    total, _ = await small_world.context.usage.of_sandbox(small_world.alice, sandbox_id)
    assert total.commands == 3
    assert (await small_world.event_types(sandbox_id)).count("command.finished") == 3


async def test_a_timeout_changed_during_a_use_is_the_one_that_counts(world: World) -> None:
    sandbox_id = (await world.create(timeout=1000)).sandbox.sandbox_id
    async with world.context.controller.use(world.alice, sandbox_id) as using:
        await world.context.controller.set_timeout(world.alice, sandbox_id, 60)
        await using.record(commands=1)
    deadline = await world.deadline(sandbox_id)
    assert deadline is not None and deadline.due_at == world.clock.now() + 60
