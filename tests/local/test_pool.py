"""Machines made in advance: each is handed out at most once, and is then what was asked for in every respect."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import MachineState, Mount, Resources, Shape
from paddock.providers.common.record import SandboxRecord, start_time
from paddock.providers.common.sandbox_egress import PROXY_PORT
from tests.local import traces
from tests.local.outside import fetch
from tests.local.place import PRIVILEGED, Inside, Place
from tests.support.waiting import until

DISK = 96
NOTHING = traces.NOTHING


def usual(**changes: float | int) -> Resources:
    """What a machine made in advance has when nobody has asked for it yet."""
    return Resources(**{"disk_mb": DISK, **changes})  # type: ignore[arg-type]


SHAPE = Shape("host", DISK)


async def warm(place: Place, count: int) -> list[SandboxRecord]:
    for _ in range(count):
        await place.provider.warm(SHAPE)
    return waiting(place)


def waiting(place: Place) -> list[SandboxRecord]:
    found = [SandboxRecord.load(folder) for folder in sorted((place.root / "warm").iterdir())]
    return [record for record in found if record is not None]


def pids(records: list[SandboxRecord]) -> set[int]:
    return {record.running.pid for record in records if record.running}


async def test_a_create_takes_one_that_stands_ready(place: Place) -> None:
    [ready] = await warm(place, 1)
    assert await place.provider.warmed() == {SHAPE: 1}
    assert await place.provider.list() == [], "nobody's is not a sandbox"
    spec = place.spec(resources=usual())
    made = await place.provider.create(spec)
    assert {place.running(spec.sandbox_id).pid} == pids([ready])
    assert made.state is MachineState.RUNNING and made.reference == ready.reference
    assert sum((await place.provider.warmed()).values()) == 0
    assert [found.sandbox_id for found in await place.provider.list()] == [spec.sandbox_id]


async def test_it_gets_its_name_its_environment_its_labels_and_its_way_out(connected: Place) -> None:
    await warm(connected, 1)
    spec = connected.spec(
        resources=usual(),
        env={"MINE": "1"},
        labels={"name": "märchen"},
        egress=EgressPolicy(EgressMode.PROXY, allow=("open.test",)),
    )
    made = await connected.provider.create(spec)
    inside = await connected.inside(spec.sandbox_id)
    assert made.labels == {"name": "märchen"} and inside.machine.sandbox_id == spec.sandbox_id
    assert await inside.says("echo $MINE; id -un; hostname; pwd") == "1\nuser\nsandbox\n/workspace"
    assert await inside.says(fetch("http://open.test/")) == "hello"
    assert (await inside.run(fetch("http://other.test/"))).code != 0
    assert await inside.machine.processes() != [] and await inside.machine.list_directory("/workspace") == []


async def test_one_that_is_asked_for_without_egress_has_none(connected: Place) -> None:
    await warm(connected, 1)
    inside = await connected.create(resources=usual(), egress=EgressPolicy(EgressMode.NONE))
    assert (await inside.run(fetch("http://open.test/"))).code != 0


async def test_it_gets_the_limits_that_were_asked_for(place: Place) -> None:
    hog = "python3 -c 'b = bytearray(%d << 20); print(len(b))'"
    await warm(place, 2)
    small = await place.create(resources=usual(memory_mb=128, pids=40, cpu=0.5))
    large = await place.create(resources=usual(memory_mb=1500, pids=400))
    assert (await small.run(hog % 256)).code != 0
    assert await large.says(hog % 1000) == str(1000 << 20)
    forks = "python3 -c 'import os, time\nfor i in range(100):\n    if not os.fork(): time.sleep(50); os._exit(0)'"
    assert (await small.run(forks)).code != 0
    assert (await small.machine.stats()).cpu_count == 0.5
    assert (await large.machine.stats()).memory_total == 1500 << 20
    if PRIVILEGED:
        assert waiting(place) == [], "both were made in advance: their limits can be changed"


async def test_limits_that_cannot_be_changed_any_more_are_not_promised(place: Place, inside: Inside) -> None:
    hard = (await place.layer(inside.sandbox_id, "memory limit")).active
    assert place.provider.shape_of(place.spec(resources=usual())) == SHAPE
    other = place.provider.shape_of(place.spec(resources=usual(memory_mb=300)))
    assert other == (SHAPE if hard else None)


async def test_what_must_be_there_from_the_start_is_made_for_the_purpose(place: Place, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    mounted = place.spec(resources=usual(), mounts=(Mount(str(tmp_path / "shared"), "/mnt/x"),))
    full = place.spec(resources=usual(), egress=EgressPolicy(EgressMode.FULL))
    assert place.provider.shape_of(mounted) is None and place.provider.shape_of(full) is None
    before = pids(await warm(place, 1))
    await place.provider.create(mounted)
    assert pids(waiting(place)) == before


async def test_another_size_or_template_is_not_served_from_it(place: Place) -> None:
    before = pids(await warm(place, 1))
    inside = await place.create(resources=usual(disk_mb=64))
    assert place.running(inside.sandbox_id).pid not in before
    assert pids(waiting(place)) == before


async def test_two_servers_racing_for_ten_hand_each_out_once(place: Place) -> None:
    ready = pids(await warm(place, 5))
    other = place.build()
    await other.start()
    for _ in range(5):
        await other.warm(SHAPE)
    ready = pids(waiting(place))
    assert len(ready) == 10
    specs = [place.spec(resources=usual()) for _ in range(20)]
    servers = [place.provider, other] * 10
    await asyncio.gather(*(server.create(spec) for server, spec in zip(servers, specs, strict=True)))
    given = [place.running(spec.sandbox_id).pid for spec in specs]
    assert len(set(given)) == 20, "one machine for two sandboxes"
    assert len(ready & set(given)) >= 8, "those that stood ready were used"
    for server, spec in zip(servers, specs, strict=True):
        await Inside(await server.attach(spec.sandbox_id)).put("/workspace/name", spec.sandbox_id)
    for spec in specs:
        assert await (await place.inside(spec.sandbox_id)).get("/workspace/name") == spec.sandbox_id.encode()
    assert waiting(place) == []
    await other.close()


async def test_what_another_server_made_ready_or_took_is_counted(place: Place) -> None:
    other = place.build()
    await other.start()
    [ready] = await warm(place, 1)
    assert await other.warmed() == {SHAPE: 1}
    spec = place.spec(resources=usual())
    await other.create(spec)
    assert {place.running(spec.sandbox_id).pid} == pids([ready])
    assert await place.provider.warmed() == {}
    assert await (await place.inside(spec.sandbox_id)).says("echo here") == "here"
    await other.close()


async def test_two_servers_asked_for_the_same_sandbox_make_one(place: Place) -> None:
    await warm(place, 4)
    other = place.build()
    await other.start()
    spec = place.spec(resources=usual())
    made = await asyncio.gather(*(server.create(spec) for server in (place.provider, other) * 3))
    assert len({found.reference for found in made}) == 1
    assert await Inside(await other.attach(spec.sandbox_id)).says("echo one") == "one"
    await other.close()


async def test_what_a_server_left_ready_is_used_by_the_next(place: Place) -> None:
    ready = pids(await warm(place, 3))
    await place.restart()
    assert await place.provider.warmed() == {SHAPE: 3}
    made = [await place.create(resources=usual()) for _ in range(3)]
    assert {place.running(inside.sandbox_id).pid for inside in made} == ready
    assert [await inside.says("echo here") for inside in made] == ["here"] * 3


async def test_what_died_while_no_server_was_there_is_cleared_away(place: Place) -> None:
    records = await warm(place, 2)
    await place.provider.close()
    for pid in pids(records):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(record.running and record.running.alive() for record in records))
    place.provider = place.build()
    await place.provider.start()
    assert sum((await place.provider.warmed()).values()) == 0
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_one_that_died_is_never_handed_out_and_leaves_nothing(place: Place) -> None:
    records = await warm(place, 2)
    [victim, other] = sorted(pids(records))
    os.kill(victim, signal.SIGKILL)
    await until(lambda: start_time(victim) is None)
    inside = await place.create(resources=usual())
    assert place.running(inside.sandbox_id).pid == other
    assert await inside.says("echo alive") == "alive"
    await until(lambda: traces.look(place.root).folders == {f"sandboxes/{inside.sandbox_id}"})
    assert sum((await place.provider.warmed()).values()) == 0


async def test_one_that_dies_in_the_moment_it_is_handed_out_lives_again_at_its_first_use(place: Place) -> None:
    """A claim asks nothing of the machine, so it cannot hear of that; whoever uses it next finds out and starts it."""
    [record] = await warm(place, 1)
    inside = await place.create(resources=usual())
    assert record.running is not None
    os.kill(record.running.pid, signal.SIGKILL)
    await until(lambda: record.running is not None and not record.running.alive())
    again = await place.inside(inside.sandbox_id)
    assert await again.says("echo alive") == "alive"


async def test_none_of_those_without_egress_has_a_port_that_listens(place: Place) -> None:
    await warm(place, 1)
    inside = await place.create(resources=usual(), egress=EgressPolicy(EgressMode.NONE))
    with pytest.raises(errors.Conflict, match="Nothing listens"):
        await inside.machine.dial(PROXY_PORT)


async def test_one_that_an_earlier_server_prepared_serves_its_sandbox(connected: Place) -> None:
    await warm(connected, 1)
    await connected.provider.close()
    connected.provider = connected.build()
    await connected.provider.start()
    assert sum((await connected.provider.warmed()).values()) == 1
    inside = await connected.create(resources=usual(), egress=EgressPolicy(EgressMode.PROXY, allow=("open.test",)))
    assert waiting(connected) == []
    assert await inside.says(fetch("http://open.test/")) == "hello"


async def test_a_claim_that_was_cut_short_by_a_crash_is_cleared_away_later(place: Place) -> None:
    """It had been moved out of the stock, and nobody came to name it."""
    [record] = await warm(place, 1)
    assert record.running is not None
    [folder] = (place.root / "warm").iterdir()
    await place.provider.close()
    draft = place.root / "drafts" / folder.name
    folder.rename(draft)
    os.utime(draft, (0, 0))
    place.provider = place.build()
    await place.provider.start()
    await until(lambda: record.running is not None and not record.running.alive())
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_a_claim_whose_limits_are_refused_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await warm(place, 1)

    def refuse(*_: object) -> None:
        raise errors.ProviderUnavailable("not now")

    with monkeypatch.context() as broken, pytest.raises(errors.ProviderUnavailable):
        broken.setattr(SandboxRecord, "save", refuse)
        await place.provider.create(place.spec(resources=usual()))
    assert await place.provider.list() == []
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_cooling_ends_them_and_nothing_is_left(place: Place) -> None:
    records = await warm(place, 3)
    await place.provider.cool(SHAPE, 1)
    assert await place.provider.warmed() == {SHAPE: 2}
    await place.provider.cool(SHAPE, 10)
    await place.provider.cool(SHAPE, 1)
    assert sum((await place.provider.warmed()).values()) == 0
    assert not [record for record in records if record.running and record.running.alive()]
    await until(lambda: traces.look(place.root) == NOTHING)


async def test_closing_leaves_them_ready_and_holds_nothing_open(place: Place) -> None:
    before = traces.descriptors()
    other = place.build()
    await other.start()
    await other.warm(SHAPE)
    await other.close()
    assert traces.descriptors() <= before
    assert len(waiting(place)) == 1
    await place.restart()


async def test_a_machine_in_advance_that_cannot_be_made_leaves_nothing(place: Place) -> None:
    with pytest.raises(errors.TemplateNotFound):
        await place.provider.warm(Shape("no-such-template", DISK))
    await until(lambda: traces.look(place.root) == NOTHING)
