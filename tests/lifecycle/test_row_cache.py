"""Rows kept in memory are never older than the database; and they save the reads that they are for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import PaddockError, SandboxNotFound
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store import sandboxes
from paddock.store.records import SandboxRow
from tests.support.world import World


class Reads:
    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = world.context.store.read

        @asynccontextmanager
        async def read() -> AsyncIterator[AsyncConnection]:
            self.count += 1
            async with original() as connection:
                yield connection

        monkeypatch.setattr(world.context.store, "read", read)


async def used(world: World, sandbox_id: str) -> SandboxRow:
    async with world.context.controller.use(world.alice, sandbox_id) as use:
        return use.sandbox


async def test_using_again_reads_nothing_on_sqlite_and_once_elsewhere(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await used(world, sandbox_id)
    await world.context.journal.all_settled()
    reads = Reads(world, monkeypatch)
    for _ in range(5):
        await used(world, sandbox_id)
    assert reads.count == (0 if world.context.store.sqlite else 5)


async def test_a_sandbox_that_is_paused_or_deleted_is_not_taken_for_running(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    for _ in range(2):
        assert (await used(world, sandbox_id)).state is State.RUNNING
        await control.pause(world.alice, sandbox_id)
        await used(world, sandbox_id)
        assert (await world.event_types(sandbox_id))[-1] == "running", "a use must have woken it"
    await control.delete(world.alice, sandbox_id)
    with pytest.raises(SandboxNotFound):
        await used(world, sandbox_id)


async def test_a_deadline_that_struck_is_known_at_once(world: World) -> None:
    sandbox_id = (await world.create(timeout=100, on_timeout="delete")).sandbox.sandbox_id
    await used(world, sandbox_id)
    await world.context.journal.settled(sandbox_id)
    await world.pass_time(101)
    await world.context.scheduler.tick()
    with pytest.raises(SandboxNotFound):
        await used(world, sandbox_id)


async def test_a_timeout_that_was_changed_is_the_one_that_counts(world: World) -> None:
    sandbox_id = (await world.create(timeout=1000)).sandbox.sandbox_id
    await used(world, sandbox_id)
    await world.context.controller.set_timeout(world.alice, sandbox_id, 60)
    assert (await used(world, sandbox_id)).timeout == 60


async def test_another_ones_sandbox_does_not_exist_however_well_known_it_is(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await used(world, sandbox_id)
    with pytest.raises(SandboxNotFound):
        async with world.context.controller.use(world.bob, sandbox_id):
            pass


async def test_a_machine_that_was_lost_is_not_believed_in(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await used(world, sandbox_id)
    async with world.another_provider() as provider:
        await provider.delete(sandbox_id)
    with pytest.raises(PaddockError):
        await used(world, sandbox_id)
    assert await world.state(sandbox_id) is State.FAILED


async def test_a_write_that_failed_leaves_nothing_wrong_behind(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await used(world, sandbox_id)
    world.faults.add("pause", FaultKind.REFUSE)
    with pytest.raises(PaddockError):
        await world.context.controller.pause(world.alice, sandbox_id)
    row = await used(world, sandbox_id)
    assert (row.state, row.version) == (State.RUNNING, (await world.row(sandbox_id)).version)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_at_once_memory_and_database_agree(small_world: World, seed: int) -> None:
    world, control, luck = small_world, small_world.context.controller, random.Random(seed)
    names = [(await world.create()).sandbox.sandbox_id for _ in range(3)]

    async def live() -> None:
        for _ in range(25):
            name = luck.choice(names)
            match luck.randrange(6):
                case 0:
                    await control.pause(world.alice, name)
                case 1:
                    await control.resume(world.alice, name)
                case 2:
                    await control.set_timeout(world.alice, name, luck.randint(60, 600))
                case 3:
                    await world.context.reconciler.sweep()
                case _:
                    await used(world, name)
            await check(luck.choice(names))

    async def check(name: str) -> None:
        known = control._row_cache._known.get(name)
        async with world.context.store.read() as connection:
            row = await sandboxes.get(connection, name)
        # Only if nothing moved meanwhile do the two speak of the same moment.
        if known is not None and row is not None and control._row_cache._known.get(name) is known:
            forgiven = {"event_seq": 0, "last_activity_at": 0.0}  # the journal's, which nobody here looks at
            assert replace(known, **forgiven) == replace(row, **forgiven)

    await asyncio.gather(*(live() for _ in range(4)))
    for name in names:
        assert (await used(world, name)).state is State.RUNNING
        assert await world.state(name) is State.RUNNING
