"""The reconciler: finishes, adopts, removes, and never takes silence for an answer."""

from __future__ import annotations

import pytest

from paddock.errors import ProviderUnavailable
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store import deadlines, sandboxes
from paddock.store.tables import deadlines as deadline_table
from paddock.store.tables import sandboxes as sandbox_table
from tests.support.world import World

STEPS = ["create", "pause", "resume", "delete"]


async def crash_in_the_middle(world: World, step: str, kind: FaultKind) -> str:
    """A server that dies while the provider is at work: before or after the effect."""
    import asyncio

    control = world.context.controller
    sandbox_id = None if step == "create" else (await world.create()).sandbox.sandbox_id
    if step == "resume":
        await control.pause(world.alice, sandbox_id or "")
    world.faults.add(step, kind)
    call = world.create() if step == "create" else getattr(control, step)(world.alice, sandbox_id)
    doomed = asyncio.create_task(call)
    via = {"create": State.CREATING, "pause": State.PAUSING, "resume": State.RESUMING, "delete": State.DELETING}[step]
    while not (rows := (await control.list(world.admin, states=[via])).sandboxes):
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)  # let the effect happen, where it is to happen before the crash
    await world.restart()
    doomed.cancel()
    world.faults.clear()
    return rows[0].sandbox_id


@pytest.mark.parametrize("kind", [FaultKind.HANG_BEFORE, FaultKind.HANG_AFTER])
@pytest.mark.parametrize("step", STEPS)
async def test_what_a_crash_cut_short_is_finished_after_the_restart(world: World, step: str, kind: FaultKind) -> None:
    sandbox_id = await crash_in_the_middle(world, step, kind)
    await world.pass_time(world.settings.server_ttl + 1)
    await world.context.reconciler.run_once()
    expected = {"create": "running", "pause": "paused", "resume": "running", "delete": None}[step]
    assert (await world.machines()).get(sandbox_id) == expected
    assert (await world.state(sandbox_id)).value == (expected or "deleted")
    assert (await world.deadline(sandbox_id) is None) == (expected is None)


async def test_a_provider_that_cannot_be_read_changes_nothing(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("list", FaultKind.FAIL, times=None)
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.RUNNING
    world.faults.clear()
    world.faults.add("list", FaultKind.OMIT).add("inspect", FaultKind.FAIL)
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.RUNNING


async def test_a_list_that_leaves_one_out_is_checked_before_it_is_believed(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("list", FaultKind.OMIT)
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.RUNNING


async def test_even_a_provider_that_lies_twice_loses_nothing(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("list", FaultKind.OMIT).add("inspect", FaultKind.OMIT)
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.FAILED
    assert await world.machines() == {sandbox_id: "running"}
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.RUNNING
    assert "recovered" in await world.event_types(sandbox_id)
    async with world.context.controller.use(world.alice, sandbox_id):
        pass


async def test_a_machine_without_a_row_is_adopted_with_its_owner(world: World) -> None:
    seen = await world.create(timeout=123, metadata={"chat": "7"})
    async with world.context.store.write() as connection:
        await connection.execute(sandbox_table.delete())
        await connection.execute(deadline_table.delete())
    await world.context.reconciler.run_once()
    row = await world.row(seen.sandbox.sandbox_id)
    assert (row.owner_id, row.user_id, row.key) == ("alice", "alice", seen.sandbox.key)
    assert (row.timeout, row.metadata, row.state) == (123, {"chat": "7"}, State.RUNNING)
    assert await world.deadline(row.sandbox_id) is not None
    async with world.context.controller.use(world.alice, row.sandbox_id):
        pass


async def test_what_is_left_of_a_deleted_sandbox_is_removed(world: World) -> None:
    seen = await world.create()
    await world.context.controller.delete(world.alice, seen.sandbox.sandbox_id)
    from paddock.lifecycle.provider_calls import spec_of

    async with world.another_provider() as provider:
        await provider.create(spec_of(seen.sandbox))
    await world.pass_time(1)
    await world.context.reconciler.run_once()
    assert await world.machines() == {}
    assert await world.state(seen.sandbox.sandbox_id) is State.DELETED


async def test_a_paused_row_over_a_running_machine_is_paused_again(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.context.controller.pause(world.alice, sandbox_id)
    async with world.another_provider() as provider:
        await provider.resume(sandbox_id)
    await world.context.reconciler.run_once()
    assert await world.machines() == {sandbox_id: "paused"}


async def test_missing_deadlines_are_set_again(world: World) -> None:
    running = (await world.create()).sandbox.sandbox_id
    paused = (await world.create()).sandbox.sandbox_id
    await world.context.controller.pause(world.alice, paused)
    async with world.context.store.write() as connection:
        await connection.execute(deadline_table.delete())
    await world.context.reconciler.run_once()
    for sandbox_id, kind in ((running, "idle"), (paused, "retention")):
        deadline = await world.deadline(sandbox_id)
        assert deadline is not None and deadline.kind.value == kind


async def test_records_of_the_long_deleted_are_forgotten_but_not_their_usage(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.pass_time(50)
    await world.context.controller.delete(world.alice, sandbox_id)
    await world.pass_time(world.settings.deleted_retention + 1)
    await world.context.reconciler.run_once()
    async with world.context.store.read() as connection:
        assert await sandboxes.get(connection, sandbox_id) is None
        assert await deadlines.count(connection) == 0
    assert await world.events(sandbox_id) == []
    total, _ = await world.context.usage.of_users(world.alice, user_id="alice", since=None, until=None)
    assert total.seconds == pytest.approx(50)


async def test_running_time_is_counted_to_the_second_across_midnight_and_pauses(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    await world.pass_time(1000)
    await control.pause(world.alice, sandbox_id)
    await world.pass_time(5000)
    await control.resume(world.alice, sandbox_id)
    await world.pass_time(86_400)
    await world.context.reconciler.sweep()
    await world.pass_time(5)
    total, days = await world.context.usage.of_sandbox(world.alice, sandbox_id)
    assert total.seconds == pytest.approx(1000 + 86_405)
    assert len(days) == 2


async def test_a_provider_that_fails_in_one_place_does_not_stop_the_rest(world: World) -> None:
    stuck = (await world.create()).sandbox.sandbox_id
    fine = (await world.create()).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.FAIL, times=2)
    for sandbox_id in (stuck, fine):
        with pytest.raises(ProviderUnavailable):
            await world.context.controller.pause(world.alice, sandbox_id)
    world.faults.add("pause", FaultKind.FAIL, times=None, sandbox_id=stuck)
    await world.context.reconciler.run_once()
    assert await world.state(stuck) is State.PAUSING
    assert await world.state(fine) is State.PAUSED
