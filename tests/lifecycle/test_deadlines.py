"""Timeouts: durable, pushed out by activity, fired once."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from paddock.errors import StoreUnavailable
from paddock.models import State, TimeoutAction
from paddock.providers.faults import FaultKind
from paddock.store.records import Deadline
from tests.support.world import World


async def test_an_idle_sandbox_is_paused_at_its_timeout(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.pass_time(99)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.RUNNING
    await world.pass_time(1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED
    assert (await world.row(sandbox_id)).reason == "Its timeout expired."


async def test_it_is_deleted_where_its_policy_says_so(world: World) -> None:
    sandbox_id = (await world.create(timeout=5, on_timeout="delete")).sandbox.sandbox_id
    await world.pass_time(5)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}


async def test_why_it_is_gone_is_known_also_after_a_try_that_failed(world: World) -> None:
    sandbox_id = (await world.create(timeout=5, on_timeout="delete")).sandbox.sandbox_id
    world.faults.add("delete", FaultKind.FAIL, times=2)
    await world.pass_time(5)
    await world.context.scheduler.tick()
    between = (await world.row(sandbox_id)).reason
    assert between is not None and between.startswith("Its timeout expired. delete has not finished: ")
    for _ in range(2):
        await world.context.reconciler.finish(patient=False)
    row = await world.row(sandbox_id)
    assert (row.state, row.reason) == (State.DELETED, "Its timeout expired.")


async def test_activity_pushes_the_deadline_out(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    for _ in range(5):
        await world.pass_time(60)
        await world.context.scheduler.tick()
        async with world.context.controller.use(world.alice, sandbox_id) as use:
            await use.record(commands=1)
    assert await world.state(sandbox_id) is State.RUNNING
    deadline = await world.deadline(sandbox_id)
    assert deadline is not None and deadline.due_at == world.clock.now() + 100


async def test_a_long_use_keeps_the_sandbox_awake(world: World) -> None:
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    async with world.context.controller.use(world.alice, sandbox_id):
        for _ in range(10):
            await world.pass_time(9)
            await world.context.activity.refresh()
            await world.context.journal.flush()
            await world.context.scheduler.tick()
            assert await world.state(sandbox_id) is State.RUNNING
        # Even when the refresh came too late: who is inside is asked before anything is done.
        await world.pass_time(50)
        await world.context.scheduler.tick()
        assert await world.state(sandbox_id) is State.RUNNING
    await world.pass_time(11)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_a_warning_comes_before_the_end_and_once(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.pass_time(91)
    for _ in range(3):
        await world.context.scheduler.tick()
    assert (await world.event_types(sandbox_id)).count("timeout_warning") == 1
    warning = (await world.events(sandbox_id))[-1]
    assert warning.data == {"deadline": "idle", "action": "pause", "seconds_left": 9.0}
    await world.pass_time(9)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_a_timeout_set_before_a_restart_fires_after_it(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.restart()
    await world.pass_time(100)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_an_overdue_one_fires_at_once_after_a_restart(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.crash()
    await world.pass_time(10_000)
    await world.start()
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_a_lifetime_strikes_whatever_the_activity(world: World) -> None:
    sandbox_id = (await world.create(timeout=1000, max_lifetime=50, on_timeout="delete")).sandbox.sandbox_id
    for _ in range(5):
        await world.pass_time(10)
        async with world.context.controller.use(world.alice, sandbox_id) as use:
            await use.record(commands=1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.DELETED


async def test_pause_stops_the_idle_clock_and_retention_starts(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.context.controller.pause(world.alice, sandbox_id)
    await world.pass_time(7 * 86_400 - 1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED
    await world.pass_time(1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.DELETED


async def test_a_timeout_set_on_a_paused_sandbox_is_remembered_and_does_not_wake_it(world: World) -> None:
    control = world.context.controller
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await control.pause(world.alice, sandbox_id)
    await control.set_timeout(world.alice, sandbox_id, 7, TimeoutAction.DELETE)
    assert await world.state(sandbox_id) is State.PAUSED
    seen = await control.resume(world.alice, sandbox_id)
    assert seen.expires is not None and seen.expires.due_at == world.clock.now() + 7


async def test_a_deadline_renewed_at_the_last_moment_does_not_fire(world: World) -> None:
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    await world.pass_time(10)
    (claimed,) = await world.context.scheduler.claim()
    await world.context.controller.set_timeout(world.alice, sandbox_id, 10)
    await world.context.scheduler.handle(claimed)
    assert await world.state(sandbox_id) is State.RUNNING


async def test_two_servers_that_both_hold_it_fire_once(world: World) -> None:
    if world.context.store.sqlite:
        return  # one server at a time there, which tests/server/test_context.py proves
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    other = world.another_house()
    await other.open(loops=False)
    await world.pass_time(10)
    (claimed,) = await world.context.scheduler.claim()
    await asyncio.gather(world.context.scheduler.handle(claimed), other.scheduler.handle(claimed))
    assert (await world.event_types(sandbox_id)).count("pausing") == 1
    await other.close()


async def test_what_a_dead_server_had_claimed_fires_when_it_is_known_to_be_dead(world: World) -> None:
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    await world.pass_time(10)
    assert len(await world.context.scheduler.claim()) == 1
    await world.restart()
    if not world.context.store.sqlite:  # where it could be one of several, by its heartbeat
        await world.context.scheduler.tick()
        assert await world.state(sandbox_id) is State.RUNNING
        await world.pass_time(world.settings.server_ttl + 1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_what_the_database_did_not_let_be_done_is_done_when_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    await world.pass_time(10)

    async def fail(deadline: Deadline) -> bool:
        raise StoreUnavailable("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(world.context.controller, "expire_deadline", fail)
        assert await world.context.scheduler.tick() == 1
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


async def test_what_is_being_handled_is_not_begun_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create(timeout=10)
    await world.pass_time(10)
    strike, may_go_on = world.context.controller.expire_deadline, asyncio.Event()

    async def wait(deadline: Deadline) -> bool:
        await may_go_on.wait()
        return await strike(deadline)

    monkeypatch.setattr(world.context.controller, "expire_deadline", wait)
    claimed = await world.context.scheduler.claim()
    first = asyncio.create_task(world.context.scheduler.handle(claimed[0]))
    assert await world.context.scheduler.tick() == 0
    may_go_on.set()
    await first
    assert await world.context.scheduler.tick() == 0


async def test_a_pause_that_fails_is_tried_until_it_succeeds(world: World) -> None:
    sandbox_id = (await world.create(timeout=10)).sandbox.sandbox_id
    world.faults.add("pause", FaultKind.FAIL, times=2)
    await world.pass_time(10)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSING
    for _ in range(2):
        await world.context.reconciler.finish(patient=False)
    assert await world.state(sandbox_id) is State.PAUSED
    assert (await world.row(sandbox_id)).reason == "Its timeout expired.", "the trouble is over, and so is word of it"
    assert (await world.event_types(sandbox_id)).count("pausing") == 1


async def test_failures_are_tried_again_with_growing_patience(small_world: World) -> None:
    sandbox_id = (await small_world.create(timeout=10)).sandbox.sandbox_id
    small_world.faults.add("pause", FaultKind.FAIL, times=None)
    await small_world.pass_time(10)
    await small_world.context.scheduler.tick()
    tries = []
    for _ in range(120):
        await small_world.pass_time(1)
        before = (await small_world.row(sandbox_id)).attempts
        await small_world.context.reconciler.finish()
        if (await small_world.row(sandbox_id)).attempts > before:
            tries.append(small_world.clock.now())
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(tries)]
    assert gaps[:4] == [4, 8, 16, 32]


@pytest.mark.parametrize("jump", [-86_400, 86_400])
async def test_a_clock_that_jumps_loses_no_deadline(world: World, jump: float) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.pass_time(jump)
    await world.context.reconciler.sweep()
    await world.context.scheduler.tick()
    if jump > 0:
        assert await world.state(sandbox_id) is State.PAUSED
        return
    deadline = await world.deadline(sandbox_id)
    assert deadline is not None and deadline.due_at == world.clock.now() + 100
    total, _ = await world.context.usage.of_sandbox(world.alice, sandbox_id)
    assert total.seconds >= 0


async def test_looking_is_not_using(world: World) -> None:
    sandbox_id = (await world.create(timeout=100)).sandbox.sandbox_id
    await world.pass_time(60)
    machine = await world.context.controller.peek(world.alice, sandbox_id)
    assert (await machine.stats()).process_count >= 0
    await world.pass_time(40)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED
