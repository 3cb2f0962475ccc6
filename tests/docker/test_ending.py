"""A container ends when somebody says so, whatever happens inside or to its agent; and its agent is out of reach."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from paddock import errors
from paddock.doctor.suite import probe_program
from tests.docker import engine
from tests.docker.place import Place

pytestmark = pytest.mark.timeout(900)

REFUSED = 0
"""What the probe ends with."""
ATTEMPTS = (
    "agent-limits",
    "agent-priority",
    "agent-affinity",
    "agent-oom-score",
    "agent-settings",
    "agent-memory-advice",
    "agent-kill",
)


@pytest.mark.parametrize("user", ["user", "root"])
async def test_the_agent_is_out_of_reach(place: Place, user: str) -> None:
    inside = await place.create()
    await inside.put("/workspace/probe", probe_program().read_bytes())
    await inside.says("chmod 755 /workspace/probe")
    for name in ATTEMPTS:
        ran = await inside.run(f"/workspace/probe run {name}", user=user)
        assert ran.code == REFUSED, f"{name}: {ran.text}"
    assert await inside.says("echo here") == "here"


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
async def test_an_agent_that_does_nothing_any_more_is_ended(place: Place, sent: signal.Signals, paused: bool) -> None:
    inside = await place.create()
    await inside.start("exec sleep 1000")
    name = await place.container(inside.sandbox_id)
    pid = int(engine.call("GET", f"/containers/{name}/json").json()["State"]["Pid"])
    os.kill(pid, sent)
    async with asyncio.timeout(240):
        if paused:
            await place.provider.pause(inside.sandbox_id)
        await place.provider.delete(inside.sandbox_id)
    assert await place.provider.list() == []
    assert await place.provider.inspect(inside.sandbox_id) is None


async def test_a_record_that_cannot_be_read_keeps_no_other_from_being_served(place: Place) -> None:
    bad, other = await place.create(), await place.create()
    path = place.provider._yard.folder(bad.sandbox_id) / "record.json"
    kept = path.read_bytes()
    path.write_text("{ half a rec")
    for _ in range(2):
        assert [found.sandbox_id for found in await place.provider.list()] == [other.sandbox_id]
        with pytest.raises(errors.ProviderUnavailable):
            await place.provider.inspect(bad.sandbox_id)
        await place.restart()
    path.write_bytes(kept)
    assert await (await place.inside(bad.sandbox_id)).says("echo here") == "here"
