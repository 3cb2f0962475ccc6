"""Paused means that nothing happens; resumed means that everything goes on, connections included."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.base import ProcessStatus, Stream
from paddock.providers.base import MachineState, Resources
from paddock.providers.common.record import boot_id
from tests.conformance.test_ports import ECHO
from tests.local import traces
from tests.local.place import Inside, Place, as_ordinary_user
from tests.support.waiting import PATIENCE_S, until


def work(first: int) -> dict[int, int]:
    """Ticks of processor time of every process below one, as the host counts them."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    below = {first}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: ticks[pid] for pid in below - {first}}


async def test_processes_and_an_open_connection_go_on(place: Place, inside: Inside) -> None:
    await inside.put("/workspace/echo.py", ECHO)
    server = await inside.start("exec python3 echo.py")
    await inside.until(server, b"up")
    connection = await inside.machine.dial(8000)
    await connection.write(b"before")
    assert await connection.read() == b"before"
    await place.provider.pause(inside.sandbox_id)
    await connection.write(b"meanwhile")
    answer = asyncio.create_task(connection.read())
    done, _ = await asyncio.wait([answer], timeout=0.5)
    assert not done, "a paused sandbox answered"
    await place.provider.resume(inside.sandbox_id)
    async with asyncio.timeout(PATIENCE_S):
        assert await answer == b"meanwhile"
    await connection.write(b"after")
    assert await connection.read() == b"after"
    await connection.close()
    assert (await inside.machine.process(server)).running


async def test_a_load_that_forks_all_the_time_stands_still(place: Place) -> None:
    inside = await place.create(resources=Resources(cpu=2, memory_mb=256, disk_mb=128, pids=200))
    forks = "while :; do /bin/true; (/bin/true); done"
    load = await inside.start(f"for i in 1 2 3 4 5 6 7 8; do ({forks}) & done; echo up; wait")
    await inside.until(load, b"up")
    pid = place.running(inside.sandbox_id).pid
    for _ in range(3):
        await place.provider.pause(inside.sandbox_id)
        before = work(pid)
        assert len(before) >= 8
        await asyncio.sleep(0.3)  # in which it would have forked hundreds of times
        assert work(pid).items() <= before.items(), "nobody came, and nobody worked; who was dying may be gone"
        await place.provider.resume(inside.sandbox_id)
        await until(lambda seen=before: work(pid).keys() != seen.keys())  # type: ignore[misc]
    ended = await inside.machine.process(load)
    assert ended.running, (ended, await inside.read(load, Stream.STDERR))


async def test_a_hard_timeout_does_not_count_frozen_time(place: Place, inside: Inside) -> None:
    process = await inside.start("echo up; exec sleep 100", hard_timeout=3.0)
    started = time.monotonic()
    await inside.until(process, b"up")
    await place.provider.pause(inside.sandbox_id)
    frozen = time.monotonic()
    await asyncio.sleep(3.5)
    await place.provider.resume(inside.sandbox_id)
    thawed = time.monotonic()
    assert (await inside.machine.process(process)).running, "it had been awake for much less"
    ended = await inside.machine.wait(process, 10)
    assert ended.status is ProcessStatus.TIMED_OUT
    awake = (frozen - started) + (time.monotonic() - thawed)
    assert 1.8 < awake < 8, "of a freeze at most the agent's longest look, a second, is counted"


async def test_a_process_that_had_been_stopped_stays_stopped(place: Place, inside: Inside) -> None:
    stopped = await inside.start("sleep 1000 & child=$!; kill -STOP $child; echo $child; exec sleep 1000")
    child = int(await inside.until(stopped, b"\n"))
    state = f"cut -d' ' -f3 /proc/{child}/stat"
    await _until_says(inside, state, "T")
    await place.provider.pause(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    assert await inside.says(state) == "T"
    await inside.says(f"kill -CONT {child}")
    await _until_says(inside, state, "S")


async def test_twice_is_once_also_at_the_same_time(place: Place, inside: Inside) -> None:
    name = inside.sandbox_id
    await asyncio.gather(*(place.provider.pause(name) for _ in range(3)))
    found = await place.provider.inspect(name)
    assert found is not None and found.state is MachineState.PAUSED
    with pytest.raises(errors.Conflict):
        await place.provider.attach(name)
    await asyncio.gather(*(place.provider.resume(name) for _ in range(3)))
    assert await (await place.inside(name)).says("echo here") == "here"
    await asyncio.gather(place.provider.pause(name), place.provider.resume(name), place.provider.pause(name))
    await place.provider.resume(name)
    assert await (await place.inside(name)).says("echo here") == "here"


async def test_pausing_again_and_again_leaves_nothing_open(place: Place, inside: Inside) -> None:
    async def cycle() -> None:
        await place.provider.pause(inside.sandbox_id)
        await place.provider.resume(inside.sandbox_id)

    await cycle()
    before = traces.descriptors()
    tasks = len(asyncio.all_tasks())
    for _ in range(10):
        await cycle()
    assert traces.descriptors() <= before
    assert len(asyncio.all_tasks()) <= tasks


async def test_commands_right_after_a_resume_work(place: Place, inside: Inside) -> None:
    for number in range(5):
        await place.provider.pause(inside.sandbox_id)
        await place.provider.resume(inside.sandbox_id)
        assert await inside.says(f"echo {number}") == str(number)


async def test_a_paused_sandbox_whose_processes_die_is_still_paused_and_can_be_resumed(
    place: Place, inside: Inside
) -> None:
    await inside.put("/workspace/kept", "here")
    await place.provider.pause(inside.sandbox_id)
    await place.end(inside.sandbox_id)
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).get("/workspace/kept") == b"here"


@as_ordinary_user
async def test_without_a_freezer_every_process_but_the_agent_is_stopped(place: Place, inside: Inside) -> None:
    layer = await place.layer(inside.sandbox_id, "freezer")
    if layer.active:
        pytest.skip(f"there is one: {layer.detail}")
    load = await inside.start("for i in 1 2 3; do (while :; do :; done) & done; echo up; wait")
    await inside.until(load, b"up")
    await place.provider.pause(inside.sandbox_id)
    pid = place.running(inside.sandbox_id).pid

    def states() -> set[str]:
        return {Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] for one in work(pid)}

    assert len(work(pid)) >= 4
    await until(lambda: states() == {"T"})  # a busy processor takes a moment to deliver a signal
    assert place.running(inside.sandbox_id).stopped, "it is written down, for a server that comes later"
    await place.restart()
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await place.provider.resume(inside.sandbox_id)
    assert (await (await place.inside(inside.sandbox_id)).machine.process(load)).running
    await until(lambda: any(ticks > 5 for ticks in work(pid).values()))


async def _until_says(inside: Inside, script: str, wanted: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await inside.says(script) != wanted:
            await asyncio.sleep(0.01)


async def test_the_boot_id_is_of_this_boot_of_this_sandbox(place: Place, inside: Inside) -> None:
    """Programs tell a restart by it. It is not the host's, and it changes where the memory was not kept."""
    ask = "cat /proc/sys/kernel/random/boot_id"
    first = await inside.says(ask)
    assert str(uuid.UUID(first)) == first
    assert first != boot_id()
    other = await place.create()
    assert await other.says(ask) != first
    await place.provider.pause(inside.sandbox_id)
    await place.provider.resume(inside.sandbox_id)
    assert await inside.says(ask) == first
    await place.provider.pause(inside.sandbox_id, keep_memory=False)
    await place.provider.resume(inside.sandbox_id)
    again = await place.inside(inside.sandbox_id)
    assert await again.says(ask) not in (first, boot_id())


async def test_a_pause_without_memory_survives_a_restart_of_the_server(place: Place, inside: Inside) -> None:
    await inside.says("echo kept > /workspace/file; (sleep 1000 &) ; echo")
    await place.provider.pause(inside.sandbox_id, keep_memory=False)
    await place.restart()
    found = await place.provider.inspect(inside.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("cat /workspace/file") == "kept"


async def test_servers_on_one_home_pause_and_resume_by_turns(place: Place, inside: Inside) -> None:
    """Each sees what the other did: state is read from the freezer, not from what this server did last."""
    other = place.build()
    await other.start()

    async def state() -> MachineState:
        found = await place.provider.inspect(inside.sandbox_id)
        assert found is not None
        return found.state

    for one, another in ((place.provider, other), (other, place.provider)):
        await one.pause(inside.sandbox_id)
        await another.resume(inside.sandbox_id)
        assert await state() is MachineState.RUNNING
        assert await Inside(await one.attach(inside.sandbox_id)).says("echo awake") == "awake"
        await one.pause(inside.sandbox_id)
        assert await state() is MachineState.PAUSED
        await another.resume(inside.sandbox_id)
    await other.close()


async def test_a_server_that_never_used_a_sandbox_resumes_it_with_its_memory(place: Place) -> None:
    """It was made, and paused, by another one on this home."""
    other = place.build()
    await other.start()
    inside = await place.create()
    process = await inside.start("exec sleep 1000")
    await place.provider.pause(inside.sandbox_id)
    await other.resume(inside.sandbox_id)
    found = await (await other.attach(inside.sandbox_id)).processes()
    assert [one.running for one in found if one.process_id == process] == [True]
    await other.close()
