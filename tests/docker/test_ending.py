"""A container ends when somebody says so, whatever happens inside or to its agent. That its agent is out of reach is
shown by ``tests/escape``."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
import structlog

from paddock import errors
from tests.docker import engine
from tests.docker.place import Place

pytestmark = pytest.mark.timeout(900)


def signalled(container: str, sent: signal.Signals) -> None:
    os.kill(int(engine.call("GET", f"/containers/{container}/json").json()["State"]["Pid"]), sent)


HARM: dict[str, Callable[[str], object]] = {
    "stopped": lambda container: signalled(container, signal.SIGSTOP),
    "killed": lambda container: signalled(container, signal.SIGKILL),
    "frozen": lambda container: engine.call("POST", f"/containers/{container}/pause").raise_for_status(),
}


@pytest.mark.parametrize("harm", list(HARM))
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
async def test_an_agent_that_does_nothing_any_more_is_ended(place: Place, harm: str, paused: bool) -> None:
    inside = await place.create()
    await inside.start("exec sleep 1000")
    HARM[harm](await place.container(inside.sandbox_id))
    async with asyncio.timeout(240):
        if paused:
            await place.provider.pause(inside.sandbox_id)
        await place.provider.delete(inside.sandbox_id)
    assert await place.provider.list() == []
    assert await place.provider.inspect(inside.sandbox_id) is None


async def test_a_record_that_cannot_be_read_keeps_no_other_from_being_served(place: Place) -> None:
    bad, other = await place.create(), await place.create()
    path = place.provider._dirs.folder(bad.sandbox_id) / "record.json"
    kept = path.read_bytes()
    path.write_text("{ half a rec")
    for _ in range(2):
        assert [found.sandbox_id for found in await place.provider.list()] == [other.sandbox_id]
        with pytest.raises(errors.ProviderUnavailable):
            await place.provider.inspect(bad.sandbox_id)
        await place.restart()
    path.write_bytes(kept)
    assert await (await place.inside(bad.sandbox_id)).says("echo here") == "here"


async def test_one_that_is_deleted_is_not_logged_as_one_that_ended_by_itself(place: Place) -> None:
    deleted, killed = [(await place.create()).sandbox_id for _ in range(2)]
    with structlog.testing.capture_logs() as logs:
        await place.provider.delete(deleted)
        signalled(await place.container(killed), signal.SIGKILL)
        while (killed, "sandbox ended") not in [(one.get("sandbox_id"), one["event"]) for one in logs]:
            await asyncio.sleep(0.01)
    assert [one["sandbox_id"] for one in logs if one["event"] == "sandbox ended"] == [killed]
