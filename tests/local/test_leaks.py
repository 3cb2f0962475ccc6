"""After many sandboxes the host is as it was: mounts, loop devices, groups, namespaces, files, descriptors."""

from __future__ import annotations

import asyncio

import pytest

from paddock.providers.base import Shape
from tests.local import traces
from tests.local.place import PRIVILEGED, Inside, Place
from tests.support.waiting import until

CYCLES = 100
AT_ONCE = 5
NOTHING = traces.NOTHING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def one(place: Place, seen: set[str]) -> None:
    spec = place.spec()
    await place.provider.create(spec)
    seen.add(network(place, spec.sandbox_id))
    inside = Inside(await place.provider.attach(spec.sandbox_id))
    assert await inside.says("sleep 1000 & echo $((6 * 7))") == "42"
    await place.provider.delete(spec.sandbox_id)


def network(place: Place, sandbox_id: str) -> str:
    """As the host names it; an ordinary user may not look at the agent, and counts its process instead."""
    pid = place.running(sandbox_id).pid
    try:
        return traces.network(pid)
    except PermissionError:
        return f"pid {pid}"


async def test_a_hundred_sandboxes_leave_nothing(place: Place) -> None:
    networks: set[str] = set()
    await one(place, networks)
    await until(lambda: traces.look(place.root) == NOTHING)
    before = traces.descriptors(), len(asyncio.all_tasks()), traces.threads()
    for _ in range(CYCLES // AT_ONCE):
        await asyncio.gather(*(one(place, networks) for _ in range(AT_ONCE)))
    await until(lambda: traces.look(place.root) == NOTHING)
    await until(lambda: traces.descriptors() <= before[0])
    await until(lambda: len(asyncio.all_tasks()) <= before[1])
    assert traces.threads() <= before[2] + 8, "threads of the pool are kept, no others"
    await until(lambda: not networks & (traces.networks() | traces.pids()))


async def test_an_installation_without_sandboxes_leaves_no_group_behind(place: Place) -> None:
    inside = await place.create()
    assert not PRIVILEGED or traces.group_parents(place.root)
    await place.provider.delete(inside.sandbox_id)
    await place.provider.close()
    await until(lambda: traces.group_parents(place.root) == [])
    place.provider = place.build()
    await place.provider.start()


async def test_machines_made_in_advance_leave_nothing(place: Place) -> None:
    shape = Shape("host", 128)
    await place.provider.warm(shape)
    await place.provider.cool(shape, 1)
    await until(lambda: traces.look(place.root) == NOTHING)
    before = traces.descriptors()
    for _ in range(10):
        await asyncio.gather(*(place.provider.warm(shape) for _ in range(3)))
        inside = await place.create()
        await place.provider.cool(shape, 3)
        await place.provider.delete(inside.sandbox_id)
    await until(lambda: traces.look(place.root) == NOTHING)
    await until(lambda: traces.descriptors() <= before)


async def test_ending_and_starting_again_leaves_nothing(place: Place, inside: Inside) -> None:
    async def cycle() -> None:
        await place.end(inside.sandbox_id)
        await place.provider.resume(inside.sandbox_id)
        await (await place.inside(inside.sandbox_id)).says("true")

    await cycle()
    before = traces.look(place.root), traces.descriptors()
    for _ in range(10):
        await cycle()
    after = traces.look(place.root)
    assert len(after.loops) == len(before[0].loops) and len(after.claims) == len(before[0].claims)
    assert after.groups == before[0].groups and after.folders == before[0].folders
    await until(lambda: traces.descriptors() <= before[1])
