"""What wakes a sandbox, what does not, and how it is found by its key."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from paddock.errors import Asleep, SandboxNotFound
from paddock.machine.base import Machine
from paddock.models import State
from paddock.providers.faults import FaultyProvider
from tests.support.world import World


async def test_using_a_paused_sandbox_wakes_it_unless_it_was_made_not_to(world: World) -> None:
    controller = world.context.controller
    for auto_resume in (True, False):
        sandbox_id = (await world.create(auto_resume=auto_resume)).sandbox.sandbox_id
        await controller.pause(world.alice, sandbox_id)
        if auto_resume:
            async with controller.use(world.alice, sandbox_id) as use:
                assert use.sandbox.state is State.RUNNING
        else:
            with pytest.raises(Asleep):
                async with controller.use(world.alice, sandbox_id):
                    pass
            assert (await controller.connect(world.alice, sandbox_id)).sandbox.state is State.RUNNING


async def test_a_key_leads_to_the_sandbox_as_it_is_now(world: World) -> None:
    controller = world.context.controller
    made = (await world.create()).sandbox
    assert (await controller.by_key(made.key)).state is State.RUNNING
    await controller.pause(world.alice, made.sandbox_id)
    assert (await controller.by_key(made.key)).state is State.PAUSED
    async with controller.use_key(made.key, wake=True) as use:
        assert use.sandbox.sandbox_id == made.sandbox_id
    assert (await controller.by_key(made.key)).state is State.RUNNING


async def test_use_by_key_is_a_use_and_keeps_the_idle_deadline_away(world: World) -> None:
    made = (await world.create(timeout=100)).sandbox
    await world.pass_time(60)
    async with world.context.controller.use_key(made.key, wake=True):
        await world.pass_time(101)
        assert await world.context.scheduler.tick() >= 1
        assert await world.state(made.sandbox_id) is State.RUNNING


async def test_a_key_of_nobody_or_of_the_dead_is_not_found(world: World) -> None:
    controller = world.context.controller
    made = (await world.create()).sandbox
    await controller.delete(world.alice, made.sandbox_id)
    for key in (made.key, "i" + "z" * 20):
        with pytest.raises(SandboxNotFound):
            async with controller.use_key(key, wake=True):
                pass


async def test_one_that_a_host_lost_is_put_right_and_entered(world: World) -> None:
    """The provider paused it behind our back: using it by key wakes it, as every use does."""
    made = (await world.create()).sandbox
    await world.provider.pause(made.sandbox_id)
    async with world.context.controller.use_key(made.key, wake=True) as use:
        assert use.sandbox.state is State.RUNNING
    with pytest.raises(Asleep):
        await world.provider.pause(made.sandbox_id)
        async with world.context.controller.use_key(made.key, wake=False):
            pass


async def test_what_was_chosen_comes_back_from_the_providers_labels(world: World) -> None:
    made = (await world.create(public_ports=True, auto_resume=False)).sandbox
    async with world.context.store.write() as connection:
        await connection.execute(text("DELETE FROM sandboxes"))
    await world.context.reconciler.sweep()
    row = await world.row(made.sandbox_id)
    assert (row.public_ports, row.auto_resume, row.timeout_from) == (True, False, made.timeout_from)


async def test_one_that_is_paused_again_and_again_under_a_use_is_woken_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    attach, pauses = FaultyProvider.attach, 3

    async def late(self: FaultyProvider, wanted: str) -> Machine:
        nonlocal pauses
        if pauses:
            pauses -= 1
            await controller.pause(world.alice, wanted)
        return await attach(self, wanted)

    monkeypatch.setattr(FaultyProvider, "attach", late)
    monkeypatch.setattr(FaultyProvider, "attached_machine", lambda self, wanted: None)
    async with controller.use(world.alice, sandbox_id) as use:
        assert await use.machine.stat("/workspace")
    assert (pauses, await world.state(sandbox_id)) == (0, State.RUNNING)
