"""The warm pool: as much as is wanted, never handed out twice, nothing left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from paddock.clock import Pace, SystemClock
from paddock.lifecycle.pool import Demand, PoolStatus
from paddock.models import CreateSandbox, State
from paddock.providers.base import Provider, SandboxSpec, Shape
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.faults import FaultKind, FaultyProvider
from paddock.providers.local import LocalProvider
from paddock.server.context import ServerContext
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE_S
from tests.support.world import World

DEFAULT = Shape("host", 64)


async def ready(world: World) -> Mapping[Shape, int]:
    """What really stands ready."""
    return await world.ready()


def processes(world: World) -> set[int]:
    """The first process of each machine that there is."""
    records = [SandboxRecord.load(folder) for folder in (world.home / "local" / "sandboxes").iterdir()]
    return {record.running.pid for record in records if record and record.running}


async def settle(world: World, rounds: int = 30) -> None:
    for _ in range(rounds):
        await world.context.pool.tick()


@pytest.fixture
async def off(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}", PADDOCK_POOL_SIZE=0)
    await world.start()
    await world.make_accounts()
    yield world
    await world.end()


async def test_it_holds_as_many_as_the_settings_say(small_world: World) -> None:
    await small_world.context.pool.tick()
    assert await ready(small_world) == {DEFAULT: 2}
    assert small_world.context.pool.stock() == PoolStatus(ready=2, wanted=2)
    assert await small_world.machines() == {}
    await small_world.context.reconciler.run_once()
    assert (await small_world.context.controller.list(small_world.admin)).sandboxes == []


async def test_a_create_takes_one_and_it_is_made_again(small_world: World) -> None:
    await small_world.context.pool.tick()
    await small_world.create()
    assert await ready(small_world) == {DEFAULT: 1}
    await small_world.context.pool.tick()
    assert await ready(small_world) == {DEFAULT: 2}


async def test_turned_off_it_makes_nothing_and_clears_what_is_left(off: World) -> None:
    await off.provider.warm(DEFAULT)
    await off.create()
    await off.provider.warm(DEFAULT)
    await off.context.pool.run(Pace(off.clock))
    assert await ready(off) == {}
    assert off.context.pool.stock() is None


async def test_much_demand_makes_more_of_just_that_shape_up_to_the_limit(small_world: World) -> None:
    odd = Shape("host", 96)
    await small_world.create(resources={"disk_mb": 96})
    await settle(small_world, 1)
    assert await ready(small_world) == {DEFAULT: 2}, "one create says nothing about the next"
    for _ in range(4):
        await small_world.create(resources={"disk_mb": 96})
    await settle(small_world, 1)
    assert await ready(small_world) == {DEFAULT: 2, odd: 4}
    for _ in range(30):
        await small_world.create(resources={"disk_mb": 96})
    await settle(small_world, 1)
    assert await ready(small_world) == {DEFAULT: 2, odd: small_world.settings.pool_max - 2}


async def test_when_demand_falls_it_shrinks_step_by_step_to_what_the_settings_say(small_world: World) -> None:
    for _ in range(6):
        await small_world.create()
    await settle(small_world, 1)
    most = (await ready(small_world))[DEFAULT]
    assert most == 5
    await small_world.pass_time(3600)
    await settle(small_world, 1)
    assert await ready(small_world) == {DEFAULT: most - 1}
    await settle(small_world)
    assert await ready(small_world) == {DEFAULT: 2}


@pytest.mark.parametrize("jump", [-1_000_000.0, 1_000_000.0])
async def test_a_clock_that_jumps_neither_stops_it_nor_makes_it_mad(small_world: World, jump: float) -> None:
    for _ in range(4):
        await small_world.create()
    small_world.faults.add("warm", FaultKind.FAIL)
    await settle(small_world, 1)
    await small_world.pass_time(jump)
    await settle(small_world)
    there = (await ready(small_world))[DEFAULT]
    assert 2 <= there <= 3
    await small_world.create()
    await settle(small_world)
    assert 2 <= (await ready(small_world))[DEFAULT] <= 4


async def test_a_provider_that_cannot_is_asked_again_with_growing_patience_and_said_once(small_world: World) -> None:
    small_world.faults.add("warm", FaultKind.FAIL, times=None)
    tries: list[float] = []
    original = FaultyProvider.warm

    async def counted(self: FaultyProvider, shape: Shape) -> None:
        tries.append(small_world.clock.now())
        await original(self, shape)

    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(FaultyProvider, "warm", counted)
        for _ in range(120):
            await small_world.context.pool.tick()
            await small_world.pass_time(1)
        small_world.faults.clear()
        await small_world.pass_time(61)
        await small_world.context.pool.tick()
    pauses = [round(later - earlier) for earlier, later in pairwise(tries) if later > earlier]
    assert pauses[:6] == sorted(pauses[:6]) and pauses[0] <= 2 and max(pauses) >= 30
    assert len(tries) < 24
    said = [line["event"] for line in logs if line["log_level"] == "warning" and "the pool" in line["event"]]
    assert len(said) == 1 and "cannot be filled" in said[0]
    assert "the pool fills again" in [line["event"] for line in logs]
    assert await ready(small_world) == {DEFAULT: 2}


async def test_creates_go_on_while_the_pool_cannot_be_filled_or_even_looked_at(small_world: World) -> None:
    for step in ("warm", "warmed", "cool"):
        small_world.faults.add(step, FaultKind.FAIL, times=None)
    await settle(small_world, 3)
    seen = await small_world.create()
    assert seen.sandbox.state is State.RUNNING
    small_world.faults.clear()


async def test_a_hanging_provider_holds_up_nobody(small_world: World) -> None:
    small_world.settings.provider_timeout = 2 * PATIENCE_S
    small_world.faults.add("warm", FaultKind.HANG_BEFORE, times=None)
    filling = asyncio.create_task(small_world.context.pool.tick())
    await asyncio.sleep(0.02)
    async with asyncio.timeout(PATIENCE_S):
        await small_world.create()
    assert not filling.done()
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)
    small_world.faults.clear()


async def test_a_refill_gives_way_to_a_create_that_is_under_way(small_world: World) -> None:
    small_world.faults.add("create", FaultKind.SLOW, seconds=0.2)
    creating = asyncio.create_task(small_world.create())
    while not (await small_world.context.controller.list(small_world.admin)).sandboxes:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    filling = asyncio.create_task(small_world.context.pool.tick())
    await asyncio.sleep(0.05)
    assert await ready(small_world) == {}
    await asyncio.gather(creating, filling)
    assert await ready(small_world) == {DEFAULT: 2}


async def test_no_more_than_one_a_core_is_made_at_a_time(small_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    small_world.settings.pool_size = 9
    now, most = 0, 0

    original = FaultyProvider.warm

    async def warm(self: FaultyProvider, shape: Shape) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await original(self, shape)
        now -= 1

    monkeypatch.setattr(FaultyProvider, "warm", warm)
    await small_world.context.pool.tick()
    assert (await ready(small_world), most) == ({DEFAULT: 9}, 3)


async def test_what_a_crash_left_ready_counts(small_world: World) -> None:
    await small_world.context.pool.tick()
    names = {path.name for path in (small_world.home / "local" / "warm").iterdir()}
    await small_world.restart()
    await small_world.context.pool.tick()
    assert {path.name for path in (small_world.home / "local" / "warm").iterdir()} == names


async def test_closing_ends_what_stands_ready_and_nothing_else(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    await small_world.context.pool.tick()
    await small_world.stop()
    assert await ready(small_world) == {}
    assert await small_world.machines() == {sandbox_id: "running"}
    await small_world.start()


async def test_a_provider_that_fails_at_the_end_does_not_keep_the_server_from_stopping(small_world: World) -> None:
    await small_world.context.pool.tick()
    small_world.faults.add("cool", FaultKind.FAIL, times=None)
    await small_world.stop()
    small_world.faults.clear()
    await small_world.start()
    await small_world.context.pool.tick()
    assert await ready(small_world) == {DEFAULT: 2}


class Died(BaseException):
    """Of a server: no cleaning up comes after it."""


async def test_a_create_cut_short_by_a_crash_gets_its_machine_and_no_other_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead between taking a machine and handing it out; the reconciler finishes the create."""

    def died(*_: object) -> None:
        raise Died

    async def nothing(*_: object) -> None:
        """The dead do not clean up."""

    await world.context.pool.tick()
    with monkeypatch.context() as dying, pytest.raises(Died):
        dying.setattr(SandboxDirs, "publish", died)
        dying.setattr(LocalProvider, "_drop", nothing)
        await world.create()
    rows = (await world.context.controller.list(world.admin, states=[State.CREATING])).sandboxes
    await world.restart()
    others = [(await world.create()).sandbox.sandbox_id for _ in range(2)]
    await world.pass_time(world.settings.server_ttl + 1)
    await world.context.reconciler.run_once()
    assert set(await world.machines()) == {rows[0].sandbox_id, *others}
    assert len(processes(world)) == 3
    [draft] = (world.home / "local" / "drafts").iterdir()
    os.utime(draft, (0, 0))  # long ago
    await world.restart()
    assert not draft.exists()


async def test_by_itself_it_fills_wakes_on_demand_and_drains(tmp_path: Path) -> None:
    world = World(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}", SystemClock())
    world.context = world.another_house()
    await world.context.open()
    await world.make_accounts()

    async def as_many_as(count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while sum((await ready(world)).values()) != count:
                await asyncio.sleep(0.005)

    await as_many_as(2)
    for _ in range(4):
        await world.create()
    await as_many_as(3)  # well before the next look by the clock
    await world.stop()
    assert await ready(world) == {}


@pytest.mark.postgres
class TestTwoServers:
    """One stock for both, as large as the larger wish; what one still wants the other does not end."""

    @pytest.fixture
    async def world(self, tmp_path: Path, postgres: Postgres) -> AsyncIterator[World]:
        """On PostgreSQL alone: SQLite has one server at a time."""
        world = World(tmp_path, await postgres.new_database())
        await world.start()
        await world.make_accounts()
        yield world
        await world.end()

    @pytest.fixture
    async def other(self, world: World) -> AsyncIterator[ServerContext]:
        other = world.another_house()
        await other.open(loops=False)
        yield other
        await other.close()

    async def test_they_share_one_stock(self, world: World, other: ServerContext) -> None:
        await world.context.pool.tick()
        await other.pool.tick()
        assert await ready(world) == {DEFAULT: 2}

    async def test_both_at_once_settle_on_what_is_wanted(self, world: World, other: ServerContext) -> None:
        for _ in range(12):
            await asyncio.gather(world.context.pool.tick(), other.pool.tick())
        assert await ready(world) == {DEFAULT: 2}

    async def test_one_does_not_end_what_the_other_wants(self, world: World, other: ServerContext) -> None:
        for _ in range(6):
            await world.create()
        await world.context.pool.tick()
        assert await ready(world) == {DEFAULT: 5}
        for _ in range(5):
            await other.pool.tick()
        assert await ready(world) == {DEFAULT: 5}

    async def test_whoever_stops_leaves_what_the_other_wants(self, world: World, other: ServerContext) -> None:
        for _ in range(6):
            await world.create()
        await world.context.pool.tick()
        await other.pool.tick()
        await world.stop()
        assert await ready(world) == {DEFAULT: 2}
        await world.start()

    async def test_the_last_to_stop_leaves_nothing(self, world: World, other: ServerContext) -> None:
        await asyncio.gather(world.context.pool.tick(), other.pool.tick())
        await other.pool.drain()
        await world.context.pool.drain()
        assert await ready(world) == {}

    async def test_the_wish_of_a_dead_server_is_forgotten(self, world: World, other: ServerContext) -> None:
        for _ in range(6):
            await world.create()
        await world.context.pool.tick()
        await world.crash()
        await world.pass_time(world.settings.server_ttl + 1)
        for _ in range(5):
            await other.pool.tick()
        assert await ready(world) == {DEFAULT: 2}
        await world.start()

    async def test_no_machine_is_handed_out_twice(self, world: World, other: ServerContext) -> None:
        await asyncio.gather(world.context.pool.tick(), other.pool.tick())
        request = CreateSandbox(user_id="alice")
        made = await asyncio.gather(
            *(context.controller.create(world.alice, request) for _ in range(5) for context in (world.context, other))
        )
        names = {seen.sandbox.sandbox_id for seen in made}
        assert len(names) == 10 and set(await world.machines()) == names
        assert len(processes(world)) == 10


def test_a_provider_without_a_pool_has_none() -> None:
    assert Provider.shape_of(LocalProvider(Path("/nowhere")), SandboxSpec("", "", "", "", "")) is None


async def test_demand_fades_and_is_forgotten(small_world: World) -> None:
    demand: Demand[str] = Demand(small_world.clock)
    for _ in range(10):
        demand.note("a")
    assert demand.expected() == {"a": 9}
    await small_world.pass_time(120)
    assert demand.expected() == {"a": 3}
    await small_world.pass_time(3600)
    assert demand.expected() == {}
