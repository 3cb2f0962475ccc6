"""One bad row is one bad row: everybody else's sandboxes are listed, finished, timed out and reconciled as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import bindparam, text, update

from paddock.errors import ProviderUnavailable
from paddock.lifecycle.deadlines import backoff_seconds
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store.tables import deadlines, sandboxes
from tests.support.waiting import PATIENCE_S
from tests.support.world import World

SPOILED: Mapping[str, Mapping[str, Any]] = {
    "attempts": {"attempts": 5000},
    "negative attempts": {"attempts": -7},
    "state": {"state": "melting"},
    "action": {"on_timeout": "explode"},
    "isolation": {"isolation": "perfect"},
    "times": {"created_at": 1e300, "last_activity_at": -1e300, "state_changed_at": 1e18},
    "running time": {"running_since": -1e15},
    "shapes": {"env": [1, 2], "metadata": "text", "mounts": {}, "egress": 7},
}


async def spoil(world: World, sandbox_id: str, values: Mapping[str, Any]) -> None:
    async with world.context.store.write() as connection:
        await connection.execute(update(sandboxes).where(sandboxes.c.sandbox_id == sandbox_id).values(**values))
    world.context.row_cache._forget([sandbox_id])  # as a server that starts afterwards


@pytest.mark.parametrize("values", SPOILED.values(), ids=SPOILED.keys())
async def test_the_others_are_looked_after_as_ever(world: World, values: Mapping[str, Any]) -> None:
    bad = (await world.create()).sandbox.sandbox_id
    good = (await world.create(timeout=100)).sandbox.sandbox_id
    pausing = (await world.create()).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.FAIL, times=1)
    with pytest.raises(ProviderUnavailable):
        await world.context.controller.pause(world.alice, pausing)
    async with world.context.store.write() as connection:
        await connection.execute(deadlines.delete().where(deadlines.c.sandbox_id != good))
    await spoil(world, bad, {"state": "pausing", **values})
    for restarted in (False, True):
        if restarted:
            await world.restart()
            await world.pass_time(world.settings.server_ttl + 1)
        await world.pass_time(2.1)
        await world.context.reconciler.finish()
        await world.context.reconciler.sweep()
        assert await world.state(pausing) is State.PAUSED
        assert await world.deadline(pausing) is not None
        listed = (await world.context.controller.list(world.alice)).sandboxes
        assert {good, pausing} <= {each.sandbox_id for each in listed}
    await world.pass_time(101)
    await world.context.scheduler.tick()
    assert await world.state(good) is State.PAUSED


@pytest.mark.parametrize("values", SPOILED.values(), ids=SPOILED.keys())
async def test_a_spoiled_one_is_seen_and_can_be_deleted(world: World, values: Mapping[str, Any]) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await spoil(world, sandbox_id, values)
    seen = (await world.context.controller.get(world.alice, sandbox_id)).sandbox
    if not {"attempts", "running_since"} & values.keys():
        assert "cannot be read in full" in (seen.reason or "")
    await world.context.controller.delete(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}


async def test_a_column_that_is_not_json(small_world: World) -> None:
    """PostgreSQL takes no such thing."""
    bad, good = [(await small_world.create()).sandbox.sandbox_id for _ in range(2)]
    async with small_world.context.store.write() as connection:
        await connection.execute(
            text("UPDATE sandboxes SET metadata = :bad, env = :bad WHERE sandbox_id = :id").bindparams(
                bindparam("bad", "{{{"), bindparam("id", bad)
            )
        )
    await small_world.restart()
    listed = (await small_world.context.controller.list(small_world.alice)).sandboxes
    assert {each.sandbox_id for each in listed} == {bad, good}
    spoiled = await small_world.row(bad)
    assert spoiled.metadata == {} and "env, metadata" in (spoiled.reason or "")
    await small_world.context.reconciler.run_once()
    await small_world.context.controller.delete(small_world.alice, bad)
    assert set(await small_world.machines()) == {good}


async def test_failed_tries_are_counted_only_so_far(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.FAIL, times=None)
    with pytest.raises(ProviderUnavailable):
        await world.context.controller.pause(world.alice, sandbox_id)
    await spoil(world, sandbox_id, {"attempts": 2_000_000_000})
    await world.context.reconciler.finish(patient=False)
    assert (await world.row(sandbox_id)).attempts == 1000


def test_patience_has_an_end_whatever_was_counted() -> None:
    waits = [backoff_seconds(attempts, 60.0) for attempts in (-5, 0, 1, 2, 5, 6, 1023, 1024, 5000, 10**9)]
    assert waits == [0, 0, 2, 4, 32, 60, 60, 60, 60, 60]


async def test_a_deadline_that_failed_thousands_of_times_stops_no_other(world: World) -> None:
    bad = (await world.create(timeout=10)).sandbox.sandbox_id
    good = (await world.create(timeout=10)).sandbox.sandbox_id
    unreadable = (await world.create(timeout=10)).sandbox.sandbox_id
    async with world.context.store.write() as connection:
        change = update(deadlines)
        await connection.execute(change.where(deadlines.c.sandbox_id == bad).values(attempts=5000))
        await connection.execute(change.where(deadlines.c.sandbox_id == unreadable).values(action="explode"))
    world.faults.add("pause", FaultKind.HANG_BEFORE, sandbox_id=bad)
    stuck = asyncio.create_task(world.context.controller.pause(world.alice, bad))
    await world.pass_time(11)
    async with asyncio.timeout(100):
        await world.context.scheduler.tick()
    assert await world.state(good) is State.PAUSED
    await world.context.controller.delete(world.alice, bad)
    await asyncio.gather(stuck, return_exceptions=True)
    assert (await world.row(unreadable)).state is State.RUNNING
    await world.context.controller.delete(world.alice, unreadable)


async def test_one_that_hangs_does_not_hold_up_the_next_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.settings, "provider_timeout", 100.0)
    ids = [(await world.create()).sandbox.sandbox_id for _ in range(2)]
    world.faults.add("pause", FaultKind.FAIL, times=2)
    for sandbox_id in ids:
        with pytest.raises(ProviderUnavailable):
            await world.context.controller.pause(world.alice, sandbox_id)
    world.faults.add("pause", FaultKind.HANG_BEFORE, sandbox_id=ids[0])
    await spoil(world, ids[1], {"attempts": 5})
    await world.pass_time(3)
    assert len(await world.context.reconciler._begin_finishing()) == 1
    await world.pass_time(60)
    begun = await world.context.reconciler._begin_finishing()
    assert len(begun) == 2, "the first still hangs"
    async with asyncio.timeout(PATIENCE_S):
        while await world.state(ids[1]) is not State.PAUSED:
            await asyncio.sleep(0.01)
    assert await world.state(ids[0]) is State.PAUSING
    await world.context.controller.delete(world.alice, ids[0])
    await asyncio.gather(*begun)
