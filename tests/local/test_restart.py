"""A server that comes back finds everything as it left it: commands, output, way out, what was paused."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.machine.agent import connection
from paddock.providers.base import MachineState
from paddock.providers.common.record import start_time
from tests.local import traces
from tests.local.outside import fetch
from tests.local.place import Inside, Place


async def test_everything_that_ran_still_runs_and_nothing_was_lost(place: Place) -> None:
    sandboxes = [await place.create() for _ in range(5)]
    counters = [
        await inside.start("i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done") for inside in sandboxes
    ]
    pids = [place.running(inside.sandbox_id).pid for inside in sandboxes]
    for _ in range(3):
        await place.restart()
    assert [place.running(inside.sandbox_id).pid for inside in sandboxes] == pids
    for inside, counter in zip(sandboxes, counters, strict=True):
        after = await place.inside(inside.sandbox_id)
        assert (await after.machine.process(counter)).running
        await after.put("/workspace/stop", "")
        out = (await after.finish(counter)).out
        lines = out.count(b"\n")
        assert out == b"".join(b"%d\n" % n for n in range(1, lines + 1)) and lines > 3


async def test_what_was_paused_stays_paused_and_what_ran_goes_on(place: Place) -> None:
    running, paused = await place.create(), await place.create()
    process = await paused.start("exec sleep 1000")
    await place.provider.pause(paused.sandbox_id)
    await place.restart()
    states = {found.sandbox_id: found.state for found in await place.provider.list()}
    assert states == {running.sandbox_id: MachineState.RUNNING, paused.sandbox_id: MachineState.PAUSED}
    with pytest.raises(errors.Conflict):
        await place.provider.attach(paused.sandbox_id)
    await place.provider.resume(paused.sandbox_id)
    again = await place.inside(paused.sandbox_id)
    assert (await again.machine.process(process)).running
    assert await again.says("echo here") == "here"


async def test_the_way_out_is_served_again(connected: Place) -> None:
    inside, paused = await connected.create(), await connected.create()
    await connected.provider.pause(paused.sandbox_id)
    assert await inside.says(fetch("http://open.test/")) == "hello"
    await connected.restart()
    assert await (await connected.inside(inside.sandbox_id)).says(fetch("http://open.test/")) == "hello"
    await connected.provider.resume(paused.sandbox_id)
    assert await (await connected.inside(paused.sandbox_id)).says(fetch("http://open.test/")) == "hello"


async def test_a_request_that_came_while_no_server_was_there_waits_for_the_next_one(connected: Place) -> None:
    """The agent holds the listener, so nothing is refused meanwhile."""
    inside = await connected.create()
    asked = await inside.start(f"while [ ! -e go ]; do sleep 0.01; done; echo asking; {fetch('http://open.test/')}")
    await inside.put("/workspace/go", "")
    await inside.until(asked, b"asking")
    await connected.provider.close()
    connected.provider = connected.build()
    await connected.provider.start()
    again = await connected.inside(inside.sandbox_id)
    assert (await again.finish(asked)).text == "asking\nhello"


async def test_a_sandbox_that_does_not_answer_keeps_no_other_from_being_served(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, stuck = await place.create(), await place.create()
    pid = place.running(stuck.sandbox_id).pid
    await place.provider.close()
    os.kill(pid, signal.SIGSTOP)
    place.provider = place.build()
    with monkeypatch.context() as impatient:
        _lose_patience(impatient)
        await place.provider.start()
    assert {found.sandbox_id for found in await place.provider.list()} == {inside.sandbox_id, stuck.sandbox_id}
    assert await (await place.inside(inside.sandbox_id)).says("echo here") == "here"
    with monkeypatch.context() as impatient, pytest.raises(errors.ProviderUnavailable):
        _lose_patience(impatient)
        await (await place.inside(stuck.sandbox_id)).says("echo nothing")
    os.kill(pid, signal.SIGCONT)
    assert await (await place.inside(stuck.sandbox_id)).says("echo awake") == "awake"


async def test_closing_a_provider_leaves_nothing_open_and_ends_nothing(place: Place) -> None:
    before = traces.descriptors()
    other = place.build()
    await other.start()
    spec = place.spec()
    await other.create(spec)
    assert await Inside(await other.attach(spec.sandbox_id)).says("echo here") == "here"
    await other.close()
    assert traces.descriptors() <= before
    assert place.running(spec.sandbox_id).alive()
    assert await (await place.inside(spec.sandbox_id)).says("echo still") == "still"


async def test_two_servers_on_one_home_serve_the_same_sandboxes(place: Place, inside: Inside) -> None:
    other = place.build()
    await other.start()
    beside = Inside(await other.attach(inside.sandbox_id))
    await asyncio.gather(*(one.says("echo x >> log") for one in (inside, beside) for _ in range(10)))
    assert await beside.says("wc -l < log") == "20"
    made = place.spec()
    await other.create(made)
    assert await (await place.inside(made.sandbox_id)).says("echo here") == "here"
    await place.provider.delete(made.sandbox_id)
    with pytest.raises(errors.PaddockError):
        await Inside(await other.attach(made.sandbox_id)).says("echo gone")
    await other.close()


async def test_a_record_that_cannot_be_read_is_not_taken_for_a_sandbox_that_is_gone(
    place: Place, inside: Inside
) -> None:
    path = place.folder(inside.sandbox_id) / "record.json"
    kept = path.read_bytes()
    slot = place.running(inside.sandbox_id).uid_slot
    other = await place.create()
    path.write_text("{ half a rec")
    for _ in range(2):
        with pytest.raises(errors.ProviderUnavailable):
            await place.provider.inspect(inside.sandbox_id)
        assert [found.sandbox_id for found in await place.provider.list()] == [other.sandbox_id]
        await place.restart()  # which one such record does not keep from starting
    assert slot is None or Path("/run/paddock/uids", str(slot)).exists(), "its ids are still its own"
    assert await (await place.inside(other.sandbox_id)).says("echo here") == "here"
    path.write_bytes(kept)
    assert await place.provider.inspect(inside.sandbox_id) is not None
    assert await (await place.inside(inside.sandbox_id)).says("echo here") == "here"


async def test_a_sandbox_whose_record_cannot_be_read_is_ended_by_the_server_that_knows_it(
    place: Place, inside: Inside
) -> None:
    pid = place.running(inside.sandbox_id).pid
    (place.folder(inside.sandbox_id) / "record.json").write_text("{ half a rec")
    await place.provider.delete(inside.sandbox_id)
    assert start_time(pid) is None


def _lose_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute is what a server waits for an agent's answer."""
    original = connection.AgentConnection.__init__

    def impatient(self: connection.AgentConnection, *words: Any, **more: Any) -> None:
        original(self, *words, **more)
        self.reply_seconds = 0.3

    monkeypatch.setattr(connection.AgentConnection, "__init__", impatient)
