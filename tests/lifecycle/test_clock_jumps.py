"""The system's clock is set while sandboxes run: their spans of time stay what they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddock.clock import ManualClock
from paddock.models import State
from paddock.store import sandboxes
from tests.support.world import World

HOUR = 3600.0


def set_clock(world: World, seconds: float) -> None:
    assert isinstance(world.clock, ManualClock)
    world.clock.set_system(seconds)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_timeout_lasts_as_long_as_it_should(world: World, jump: float) -> None:
    sandbox_id = (await world.create(timeout=20)).sandbox.sandbox_id
    await world.pass_time(5)
    set_clock(world, jump)
    await world.context.scheduler.tick()
    await world.pass_time(14)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.RUNNING
    await world.pass_time(1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_what_runs_is_billed_by_what_passed(world: World, jump: float) -> None:
    sandbox_id = (await world.create(timeout=1000)).sandbox.sandbox_id
    await world.pass_time(30)
    set_clock(world, jump)
    await world.context.scheduler.tick()
    await world.pass_time(12)
    running = (await world.context.usage.of_sandbox(world.alice, sandbox_id))[0]
    assert running.seconds == pytest.approx(42)
    await world.context.controller.pause(world.alice, sandbox_id)
    paused = (await world.context.usage.of_sandbox(world.alice, sandbox_id))[0]
    assert paused.seconds == pytest.approx(42)


async def test_what_is_made_before_the_jump_is_noticed_is_counted_right_too(world: World) -> None:
    set_clock(world, -HOUR)
    sandbox_id = (await world.create(timeout=20)).sandbox.sandbox_id
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.RUNNING, "its time is not over because of the jump"
    await world.pass_time(20)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_use_before_the_jump_that_is_written_after_it_counts_from_when_it_was(
    world: World, jump: float
) -> None:
    sandbox_id = (await world.create(timeout=20)).sandbox.sandbox_id
    await world.pass_time(15)
    async with world.context.controller.use(world.alice, sandbox_id) as use:
        await world.context.journal.settled(sandbox_id)
        await world.pass_time(3)
        await use.record(commands=1)
        set_clock(world, jump)
        await world.context.scheduler.tick()
    await world.pass_time(19)
    deadline = await world.deadline(sandbox_id)
    assert deadline is not None and deadline.due_at == pytest.approx(world.clock.now() + 1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.RUNNING
    await world.pass_time(1)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.PAUSED


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_timeout_that_is_set_while_the_clock_is_lasts_as_long_as_it_says(
    world: World, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    sandbox_id = (await world.create(timeout=1000)).sandbox.sandbox_id
    write = world.context.store.write
    waiting = [True]

    @asynccontextmanager
    async def wait_for_turn(**given: Any) -> AsyncIterator[Any]:
        if waiting.pop() if waiting else False:
            set_clock(world, jump)
            await world.context.scheduler.tick()
        async with write(**given) as connection:
            yield connection

    monkeypatch.setattr(world.context.store, "write", wait_for_turn)
    await world.context.controller.set_timeout(world.alice, sandbox_id, 20)
    deadline = await world.deadline(sandbox_id)
    assert deadline is not None and deadline.due_at == world.clock.now() + 20


async def test_the_time_of_day_is_followed(world: World) -> None:
    before = world.clock.now()
    set_clock(world, HOUR)
    await world.context.scheduler.tick()
    assert world.clock.now() == before + HOUR
    set_clock(world, 0.2)
    await world.context.scheduler.tick()
    assert world.clock.now() == pytest.approx(before + HOUR + 0.2)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_jump_while_running_time_is_written_down_is_not_billed(
    world: World, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    sandbox_id = (await world.create(timeout=5000)).sandbox.sandbox_id
    await world.pass_time(400)
    look = sandboxes.running_since_before

    async def looked(*given: Any) -> list[str]:
        found = await look(*given)
        set_clock(world, jump)
        await world.context.scheduler.tick()
        return found

    monkeypatch.setattr(sandboxes, "running_since_before", looked)
    await world.context.reconciler.sweep()
    await world.pass_time(10)
    running = (await world.context.usage.of_sandbox(world.alice, sandbox_id))[0]
    assert running.seconds == pytest.approx(410)
