"""Pause, restart, loss: what is kept, what is told, and that nothing is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.machine.base import ProcessStatus
from paddock.providers.base import MachineState, Resources, Shape
from paddock.providers.docker.builder import PREFIX
from tests.docker import engine
from tests.docker.place import Place
from tests.support.waiting import until

SHAPE = Shape(engine.DEBIAN, 256)


async def test_everything_that_ran_still_runs_after_a_restart_of_the_server(place: Place) -> None:
    inside = await place.create()
    counter = await inside.start("i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done")
    frozen = await place.create()
    sleeper = await frozen.start("exec sleep 1000")
    await place.provider.pause(frozen.sandbox_id)
    for _ in range(2):
        await place.restart()
    again = await place.inside(inside.sandbox_id)
    assert (await again.machine.process(counter)).running
    await again.put("/workspace/stop", "")
    out = (await again.finish(counter)).out
    assert out == b"".join(b"%d\n" % n for n in range(1, out.count(b"\n") + 1)) and out
    with pytest.raises(errors.Conflict):
        await place.provider.attach(frozen.sandbox_id)
    await place.provider.resume(frozen.sandbox_id)
    assert (await (await place.inside(frozen.sandbox_id)).machine.process(sleeper)).running


async def test_a_container_that_was_stopped_is_paused_and_starts_afresh_on_its_files(place: Place) -> None:
    """As an engine or a host that was stopped leaves it."""
    inside = await place.create()
    await inside.put("/workspace/kept", "still here")
    process = await inside.start("echo before; exec sleep 1000")
    await inside.until(process, b"before")
    engine.call("POST", f"/containers/{await place.container(inside.sandbox_id)}/kill")
    await until(lambda: place.provider.attached_machine(inside.sandbox_id) is None, 60)
    await place.restart()
    assert [found.state for found in await place.provider.list()] == [MachineState.PAUSED]
    with pytest.raises(errors.Conflict, match="resume it first"):
        await place.provider.attach(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says("cat kept") == "still here"
    assert (await again.machine.process(process)).status is ProcessStatus.LOST
    assert await again.read(process) == b"before\n"


async def test_a_container_that_somebody_removed_is_definitely_gone(place: Place) -> None:
    inside = await place.create()
    engine.call("DELETE", f"/containers/{await place.container(inside.sandbox_id)}", params={"force": 1})
    assert await place.provider.inspect(inside.sandbox_id) is None
    assert await place.provider.list() == []
    for step in (place.provider.resume, place.provider.pause, place.provider.attach):
        with pytest.raises(errors.SandboxNotFound):
            await step(inside.sandbox_id)
    await place.provider.delete(inside.sandbox_id)


async def test_one_that_somebody_else_froze_is_paused_and_comes_back(place: Place) -> None:
    inside = await place.create()
    engine.call("POST", f"/containers/{await place.container(inside.sandbox_id)}/pause")
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("echo back") == "back"


async def test_a_frozen_one_gives_its_memory_up_and_keeps_its_files(place: Place) -> None:
    inside = await place.create()
    await inside.put("/workspace/kept", "here")
    await place.provider.pause(inside.sandbox_id)
    await place.provider.pause(inside.sandbox_id, keep_memory=False)
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("cat kept") == "here"


async def test_deleting_leaves_nothing_whatever_state_it_is_in(place: Place) -> None:
    running, frozen, stopped = [await place.create() for _ in range(3)]
    await place.provider.pause(frozen.sandbox_id)
    await place.provider.pause(stopped.sandbox_id, keep_memory=False)
    for inside in (running, frozen, stopped):
        await place.provider.delete(inside.sandbox_id)
    await place.provider._cleanup.finish()
    assert place.leftovers() == []


async def test_two_installations_leave_each_other_alone(place: Place, tmp_path: Path) -> None:
    inside = await place.create()
    other = Place(tmp_path / "other", place.address)
    await other.provider.start()
    assert await other.provider.list() == []
    for _ in range(3):
        await other.provider.list()
        await other.provider._cleanup.finish()
    assert await inside.says("echo alive") == "alive"
    await other.provider.close()


async def test_what_crashes_left_is_removed_and_nothing_that_is_somebodys(place: Place) -> None:
    inside = await place.create()
    await place.provider.warm(SHAPE)
    orphan = PREFIX + "0123456789abcdef"
    label = {"paddock.installation": (place.root / "installation").read_text()}
    engine.call("POST", f"/containers/create?name={orphan}", json={"Image": engine.DEBIAN, "Labels": label})
    (place.root / "births" / orphan).mkdir()
    await place.restart()
    for _ in range(2):  # one look is not enough to call a container nobody's
        await place.provider.list()
        await place.provider._cleanup.finish()
    assert orphan not in place.containers()
    assert not (place.root / "births" / orphan).exists()
    assert len(place.containers()) == 2
    assert await (await place.inside(inside.sandbox_id)).says("echo alive") == "alive"


async def test_a_machine_made_in_advance_is_handed_out_once_with_what_was_asked_for(place: Place) -> None:
    await place.provider.warm(SHAPE)
    assert await place.provider.warmed() == {SHAPE: 1}
    (ready,) = place.containers()
    spec = place.spec(
        env={"MINE": "yes"},
        resources=Resources(cpu=0.5, memory_mb=128, disk_mb=256, pids=50),
        egress=EgressPolicy(EgressMode.PROXY),
    )
    found = await place.provider.create(spec)
    assert found.reference == ready
    assert await place.provider.warmed() == {}
    inside = await place.inside(spec.sandbox_id)
    assert await inside.says("echo $MINE $http_proxy") == "yes http://127.0.0.1:3128"
    limits = engine.call("GET", f"/containers/{ready}/json").json()["HostConfig"]
    assert (limits["Memory"], limits["PidsLimit"], limits["CpuQuota"]) == (128 << 20, 50, 50_000)
    second = await place.create()
    assert await place.container(second.sandbox_id) != ready
    await place.restart()
    assert await (await place.inside(spec.sandbox_id)).says("echo $MINE") == "yes"


async def test_what_stands_ready_is_found_by_the_next_server_and_one_that_died_is_not_handed_out(place: Place) -> None:
    await asyncio.gather(place.provider.warm(SHAPE), place.provider.warm(SHAPE))
    await place.restart()
    assert await place.provider.warmed() == {SHAPE: 2}
    first = place.containers()[0]
    engine.call("POST", f"/containers/{first}/kill")
    await until(lambda: sum(place.provider._warm_machines.counts().values()) == 1, 60)
    inside = await place.create()
    assert await place.container(inside.sandbox_id) != first
