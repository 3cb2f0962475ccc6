"""Delete overrides every state: nothing that happens to a sandbox, inside it or on its way, keeps it from ending."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddock.errors import ProviderUnavailable, SandboxGone, SandboxNotFound
from paddock.lifecycle.states import DELETE, NEXT
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store import sandboxes, servers
from tests.support.waiting import PATIENCE_S
from tests.support.world import World

VIA = {"create": State.CREATING, "pause": State.PAUSING, "resume": State.RESUMING}


async def stuck(world: World, step: str, kind: FaultKind | None = None) -> tuple[str, asyncio.Task[object]]:
    """A sandbox in the middle of an operation of this very server, whose provider does not answer."""
    control = world.context.controller
    sandbox_id = None if step == "create" else (await world.create()).sandbox.sandbox_id
    if step == "resume":
        await control.pause(world.alice, sandbox_id or "")
    if kind is not None:
        world.faults.add(step, kind)
    call = world.create() if step == "create" else getattr(control, step)(world.alice, sandbox_id)
    waiting = asyncio.create_task(call)
    async with asyncio.timeout(PATIENCE_S):
        while not (rows := (await control.list(world.admin, states=[VIA[step]])).sandboxes):
            await asyncio.sleep(0.005)
    return rows[0].sandbox_id, waiting


def test_a_delete_can_begin_in_every_state_that_is_not_its_own() -> None:
    assert DELETE.start == set(State) - {State.DELETING, State.DELETED}
    assert all(State.DELETING in NEXT[state] for state in DELETE.start)


@pytest.mark.parametrize("kind", [FaultKind.HANG_BEFORE, FaultKind.HANG_AFTER])
@pytest.mark.parametrize("step", list(VIA))
async def test_delete_overrides_an_operation_that_hangs(world: World, step: str, kind: FaultKind) -> None:
    sandbox_id, waiting = await stuck(world, step, kind)
    await world.context.controller.delete(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}
    with pytest.raises(SandboxGone, match="being deleted"):  # and not that its provider took too long
        await waiting
    deleting = next(event for event in await world.events(sandbox_id) if event.type == "sandbox.deleting")
    assert deleting.data["overrides"] == VIA[step].value


@pytest.mark.parametrize("step", ["pause", "resume"])
async def test_delete_overrides_an_operation_that_always_fails(world: World, step: str) -> None:
    control = world.context.controller
    sandbox_id = (await world.create()).sandbox.sandbox_id
    if step == "resume":
        await control.pause(world.alice, sandbox_id)
    world.faults.add(step, FaultKind.FAIL, times=None)
    for _ in range(3):
        with pytest.raises(ProviderUnavailable):
            await getattr(control, step)(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is VIA[step]
    await control.delete(world.alice, sandbox_id)
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}


async def test_delete_overrides_what_another_living_server_works_on(world: World) -> None:
    sandbox = (await world.create()).sandbox
    async with world.context.store.write() as connection:
        await servers.beat(connection, "other", world.clock.now())
        await sandboxes.change(connection, sandbox, state=State.PAUSING, lease_owner="other")
    await world.context.controller.delete(world.alice, sandbox.sandbox_id)
    assert await world.state(sandbox.sandbox_id) is State.DELETED
    assert await world.machines() == {}


@pytest.mark.parametrize("step", list(VIA))
async def test_what_another_server_brings_about_after_the_delete_is_removed_again(
    world: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.context.store.sqlite:
        pytest.skip("SQLite has one server at a time")
    other = world.another_house()
    await other.open(loops=False)
    provider, deleted = world.provider, asyncio.Event()
    at_once = getattr(provider, step)

    async def late(*given: Any, **more: Any) -> Any:
        await deleted.wait()
        return await at_once(*given, **more)

    monkeypatch.setattr(world.settings, "provider_timeout", 100.0)
    if step == "create":
        monkeypatch.setattr(provider, step, late)
        sandbox_id, waiting = await stuck(world, step)
    else:
        sandbox_id = (await world.create()).sandbox.sandbox_id
        if step == "resume":
            await world.context.controller.pause(world.alice, sandbox_id)
        monkeypatch.setattr(provider, step, late)
        waiting = asyncio.create_task(getattr(world.context.controller, step)(world.alice, sandbox_id))
        while await world.state(sandbox_id) is not VIA[step]:
            await asyncio.sleep(0.005)
    await other.controller.delete(world.alice, sandbox_id)
    assert not waiting.done(), "the provider is still at work on the first server"
    deleted.set()
    with pytest.raises(SandboxNotFound):
        await waiting
    assert await world.machines() == {}
    assert await world.state(sandbox_id) is State.DELETED
    await other.close()


async def test_deletes_at_once_are_one(world: World) -> None:
    sandbox_id, waiting = await stuck(world, "pause", FaultKind.HANG_BEFORE)
    control = world.context.controller
    await asyncio.gather(*(control.delete(world.alice, sandbox_id) for _ in range(5)))
    with pytest.raises(SandboxGone):
        await waiting
    types = await world.event_types(sandbox_id)
    assert types.count("deleting") == types.count("deleted") == 1


async def test_a_deadline_deletes_what_somebody_is_stuck_with(world: World) -> None:
    sandbox_id = (await world.create(timeout=60, on_timeout="delete")).sandbox.sandbox_id
    world.faults.add("inspect", FaultKind.HANG_BEFORE)
    stuck_with_it = asyncio.create_task(world.context.transitions.compare(sandbox_id))
    await asyncio.sleep(0)
    await world.pass_time(61)
    await world.context.scheduler.tick()
    assert await world.state(sandbox_id) is State.DELETED
    with pytest.raises(SandboxGone):
        await stuck_with_it


async def test_the_end_of_its_life_comes_also_to_one_whose_pause_never_finishes(world: World) -> None:
    """A transition has no deadlines; who reconciles sees that its time is over."""
    sandbox_id = (await world.create()).sandbox.sandbox_id
    async with world.context.store.write() as connection:
        await sandboxes.patch(connection, sandbox_id, ends_at=world.clock.now() + 100)
    world.faults.add("pause", FaultKind.FAIL, times=None)
    with pytest.raises(ProviderUnavailable):
        await world.context.controller.pause(world.alice, sandbox_id)
    await world.context.reconciler.finish()
    assert await world.state(sandbox_id) is State.PAUSING
    await world.pass_time(101)
    await world.context.reconciler.finish()
    assert await world.state(sandbox_id) is State.DELETED


async def test_while_the_provider_cannot_be_reached_the_wish_stands(world: World) -> None:
    sandbox_id, waiting = await stuck(world, "pause", FaultKind.HANG_BEFORE)
    world.faults.add("delete", FaultKind.FAIL, times=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):  # 503, never a conflict
            await world.context.controller.delete(world.alice, sandbox_id)
        row = await world.row(sandbox_id)
        assert row.state is State.DELETING and "delete has not finished" in (row.reason or "")
    with pytest.raises(SandboxGone):
        await waiting
    await world.restart()
    await world.pass_time(world.settings.server_ttl + 1)
    await world.context.reconciler.run_once()
    assert await world.state(sandbox_id) is State.DELETED
    assert await world.machines() == {}


async def test_a_delete_that_hangs_is_answered_for_everybody_who_asks(world: World) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    world.faults.add("delete", FaultKind.HANG_BEFORE, times=None)
    world.settings.provider_timeout = 5
    control = world.context.controller
    asked = [control.delete(world.alice, sandbox_id) for _ in range(2)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(answer, ProviderUnavailable) for answer in answers), answers
    world.faults.clear()
    await control.delete(world.alice, sandbox_id)
    assert await world.machines() == {}
