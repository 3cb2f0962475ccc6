"""Several homes on one database: whose a sandbox is, and what nobody may conclude about another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from paddock.clock import ManualClock
from paddock.errors import ProviderUnavailable, SandboxElsewhere
from paddock.lifecycle.nodes import LOST_AFTER_S, NodeTaken
from paddock.models import State
from paddock.store import sandboxes as rows
from paddock.store.tables import nodes, sandboxes
from tests.support.postgres import Postgres
from tests.support.world import World

pytestmark = pytest.mark.postgres


@pytest.fixture
async def database(postgres: Postgres) -> str:
    return await postgres.new_database()


@pytest.fixture
async def pair(database: str, tmp_path: Path) -> AsyncIterator[tuple[World, World]]:
    clock = ManualClock()
    one, two = (World(tmp_path / name, database, clock, PADDOCK_BUSY_WAIT=1) for name in ("one", "two"))
    for world in (one, two):
        await world.start()
        await world.make_accounts()
    await one.context.nodes.beat()  # and so has heard of the other
    yield one, two
    for world in (one, two):
        await world.context.reconciler.run_once()  # deletes what is to be deleted
    await two.end()
    await one.end()


async def test_no_sweep_touches_what_lives_elsewhere(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    for world in (two, one, two):
        await world.context.reconciler.run_once()
    assert await two.event_types(made.sandbox_id) == ["creating", "running"]
    assert (await two.row(made.sandbox_id)).node_id == one.context.nodes.of("local")
    with pytest.raises(SandboxElsewhere):
        await two.context.controller.pause(two.alice, made.sandbox_id)
    assert await two.state(made.sandbox_id) is State.RUNNING


async def test_a_create_cut_short_is_finished_where_it_began(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    async with one.context.store.write() as connection:
        await connection.execute(update(sandboxes).values(state=State.PAUSING.value, lease_owner=None))
    await two.context.reconciler.run_once()
    assert await two.state(made.sandbox_id) is State.PAUSING
    await one.context.reconciler.run_once()
    assert await two.state(made.sandbox_id) is State.PAUSED


async def test_a_deadline_strikes_on_its_own_node_alone(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create(timeout=60)).sandbox
    await one.pass_time(61)
    assert await two.context.scheduler.tick() == 0
    assert await one.context.scheduler.tick() == 1
    assert await two.state(made.sandbox_id) is State.PAUSED


async def test_a_delete_is_written_anywhere_and_carried_out_at_home(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    with pytest.raises(ProviderUnavailable, match="stands"):
        await two.context.controller.delete(two.alice, made.sandbox_id)
    assert await two.state(made.sandbox_id) is State.DELETING
    await two.context.reconciler.run_once()
    assert await one.machines() == {made.sandbox_id: "running"}
    await one.context.reconciler.run_once()
    assert (await one.machines(), await two.state(made.sandbox_id)) == ({}, State.DELETED)


async def test_a_node_that_is_lost_for_a_day_holds_up_no_delete(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    await one.crash()
    await two.pass_time(60)
    with pytest.raises(ProviderUnavailable, match=r"no Paddock server runs now.*delete stands"):
        await two.context.controller.delete(two.alice, made.sandbox_id)
    await two.context.reconciler.run_once()
    assert await two.state(made.sandbox_id) is State.DELETING
    await two.pass_time(LOST_AFTER_S + 60)
    await two.context.reconciler.run_once()
    assert await two.state(made.sandbox_id) is State.DELETED
    await two.pass_time(1)
    await one.start()  # it comes back, and clears up
    await one.context.reconciler.run_once()
    assert await one.machines() == {}


async def test_a_row_from_before_is_placed_by_whoever_has_its_machine(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    async with one.context.store.write() as connection:
        await connection.execute(update(sandboxes).values(node_id=None))
    await two.context.reconciler.run_once()
    with pytest.raises(ProviderUnavailable):
        await two.context.controller.pause(two.alice, made.sandbox_id)
    assert await two.state(made.sandbox_id) is not State.FAILED
    await one.context.reconciler.run_once()
    row = await two.row(made.sandbox_id)
    assert row.node_id == one.context.nodes.of("local")


async def test_a_home_that_lost_its_name_keeps_its_sandboxes(pair: tuple[World, World]) -> None:
    one, two = pair
    made = (await one.create()).sandbox
    await one.crash()
    (one.home / "node").unlink()
    await one.start()
    await one.pass_time(60)  # until nobody can be there any more who has the old name
    await one.context.nodes.beat()
    await one.context.reconciler.run_once()
    await one.context.controller.pause(one.alice, made.sandbox_id)
    assert await two.state(made.sandbox_id) is State.PAUSED


async def test_one_home_on_two_machines_is_refused(database: str, tmp_path: Path) -> None:
    world = World(tmp_path, database, ManualClock(), PADDOCK_SERVER_TTL=60)
    await world.start()
    try:
        async with world.context.store.write() as connection:  # as a server on another machine would beat
            await connection.execute(update(nodes).values(boot_id="another", name="far"))
        second = world.another_house()
        beating = world.context.nodes
        beating._boot_id = "another"
        await world.pass_time(1)

        async def beat_soon(seconds: float) -> None:
            await beating.beat()

        second.nodes._rest = beat_soon
        with pytest.raises(NodeTaken, match="far"):
            await second.open(loops=False)
    finally:
        await world.end()


@pytest.fixture
async def apart(database: str, tmp_path: Path) -> AsyncIterator[tuple[World, World]]:
    """Two machines, each with a clock of its own."""
    one, two = (World(tmp_path / name, database, ManualClock(), PADDOCK_SERVER_TTL=15) for name in ("one", "two"))
    for world in (one, two):
        await world.start()
        await world.make_accounts()
    yield one, two
    await two.end()
    await one.end()


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_a_clock_that_is_set_moves_what_lives_on_its_node_and_nothing_else(
    apart: tuple[World, World], jump: float
) -> None:
    one, two = apart
    here, there = (await one.create(timeout=20)).sandbox.sandbox_id, (await two.create(timeout=20)).sandbox.sandbox_id
    for world in apart:
        await world.pass_time(5)
    set_clock(one, jump)
    for world in apart:
        await world.context.scheduler.tick()
        await world.pass_time(14)
        await world.context.scheduler.tick()
    assert [await one.state(each) for each in (here, there)] == [State.RUNNING] * 2
    for world in apart:
        await world.pass_time(1)
        await world.context.scheduler.tick()
    assert [await one.state(each) for each in (here, there)] == [State.PAUSED] * 2
    for world, sandbox_id in ((one, here), (two, there)):
        used = (await world.context.usage.of_sandbox(world.alice, sandbox_id))[0]
        assert used.seconds == pytest.approx(20)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_two_machines_whose_clocks_are_set_together_each_move_their_own(
    apart: tuple[World, World], jump: float
) -> None:
    made = [(await world.create(timeout=20)).sandbox.sandbox_id for world in apart]
    for world in apart:
        set_clock(world, jump)
    for world in apart:
        await world.context.scheduler.tick()
    for world, sandbox_id in zip(apart, made, strict=True):
        deadline = await world.deadline(sandbox_id)
        assert deadline is not None
        assert deadline.due_at == pytest.approx(world.clock.now() + 20, abs=0.001)


async def test_a_deadline_that_is_being_written_when_the_clock_is_set_is_moved_too(
    apart: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = apart
    following: list[asyncio.Task[int]] = []
    change = rows.change

    async def change_slowly(*given: Any, **values: Any) -> Any:
        if not following:
            set_clock(one, 3600.0)
            following.append(asyncio.create_task(one.context.scheduler.tick()))
            await asyncio.wait(following, timeout=1)
        return await change(*given, **values)

    monkeypatch.setattr(rows, "change", change_slowly)
    sandbox_id = (await one.create(timeout=20)).sandbox.sandbox_id
    await following[0]
    deadline = await one.deadline(sandbox_id)
    assert deadline is not None
    assert deadline.due_at == pytest.approx(one.clock.now() + 20, abs=0.001)
    assert await one.state(sandbox_id) is State.RUNNING


async def test_servers_that_share_a_node_move_nothing_while_both_live(database: str, tmp_path: Path) -> None:
    world = World(tmp_path / "home", database, PADDOCK_SERVER_TTL=15)
    await world.start()
    await world.make_accounts()
    other = world.another_house()
    await other.open(loops=False)
    sandbox_id = (await world.create(timeout=3000)).sandbox.sandbox_id
    due = (await world.deadline(sandbox_id) or pytest.fail()).due_at
    await world.context.nodes.beat()  # the last word is this one's
    set_clock(world, 600.0)
    await world.context.scheduler.tick()
    assert (await world.deadline(sandbox_id) or pytest.fail()).due_at == due
    await other.close()
    set_clock(world, -600.0)
    await world.context.scheduler.tick()
    assert (await world.deadline(sandbox_id) or pytest.fail()).due_at == due, "it may be there yet"
    await world.pass_time(16)
    set_clock(world, 600.0)
    await world.context.scheduler.tick()
    assert (await world.deadline(sandbox_id) or pytest.fail()).due_at == due + 600
    await world.end()


def set_clock(world: World, seconds: float) -> None:
    assert isinstance(world.clock, ManualClock)
    world.clock.set_system(seconds)
