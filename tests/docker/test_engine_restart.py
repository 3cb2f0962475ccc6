"""The engine itself is stopped, crashes and comes back under sandboxes that live: nothing is lost or left."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock import errors
from paddock.clock import SystemClock
from paddock.machine.agent import multiplexer
from paddock.machine.base import ProcessStatus
from paddock.models import State
from paddock.providers.base import MachineState
from paddock.providers.docker import DockerProvider, agent_transport
from paddock.server.context import ServerContext, build_context
from tests.docker.own_engine import IMAGE, OwnEngine
from tests.docker.place import Place
from tests.docker.test_server import Contained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own() -> Iterator[OwnEngine]:
    made = OwnEngine(Path(tempfile.mkdtemp(prefix="own-")))
    made.start()
    made.make_image()
    made.stop()
    yield made
    made.end()


@dataclass(frozen=True)
class Fall:
    """How the engine goes, and whether those in its containers see it."""

    how: signal.Signals
    live_restore: bool


FALLS = {
    "stopped": Fall(signal.SIGTERM, live_restore=False),
    "crashed": Fall(signal.SIGKILL, live_restore=False),
    "stopped-with-live-restore": Fall(signal.SIGTERM, live_restore=True),
    "crashed-with-live-restore": Fall(signal.SIGKILL, live_restore=True),
}


@pytest.fixture(params=FALLS.values(), ids=FALLS)
def fall(request: pytest.FixtureRequest, own: OwnEngine) -> Iterator[Fall]:
    chosen: Fall = request.param
    own.start(live_restore=chosen.live_restore)
    yield chosen
    assert own.containers() == []
    own.stop()


@pytest.fixture(params=["near", "far"])
async def place(request: pytest.FixtureRequest, fall: Fall, own: OwnEngine, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path, own.address, way=request.param, images=[IMAGE])
    await made.provider.start()
    yield made
    await made.clear()


async def test_sandboxes_outlive_their_engine(place: Place, fall: Fall, own: OwnEngine) -> None:
    running, frozen = await place.create(), await place.create()
    for inside in (running, frozen):
        await inside.put("/workspace/kept", "still here")
    counter = await running.start("echo before; exec sleep 1000")
    await running.until(counter, b"before")
    sleeper = await frozen.start("exec sleep 1000")
    await place.provider.pause(frozen.sandbox_id)

    own.stop(fall.how)
    with pytest.raises(errors.ProviderUnavailable):
        await place.provider.list()
    with pytest.raises(errors.ProviderUnavailable):
        await place.provider.inspect(running.sandbox_id)
    own.start(live_restore=fall.live_restore)

    states = {found.sandbox_id: found.state for found in await place.provider.list()}
    lives_on = MachineState.RUNNING if fall.live_restore else MachineState.PAUSED
    assert states == {running.sandbox_id: lives_on, frozen.sandbox_id: MachineState.PAUSED}
    for inside in (running, frozen):
        await place.provider.resume(inside.sandbox_id)
        again = await place.inside(inside.sandbox_id)
        assert await again.says("cat kept") == "still here"
    for inside, process in ((running, counter), (frozen, sleeper)):
        found = await (await place.inside(inside.sandbox_id)).machine.process(process)
        assert found.status is (ProcessStatus.RUNNING if fall.live_restore else ProcessStatus.LOST)
    assert await (await place.inside(running.sandbox_id)).read(counter) == b"before\n"


@pytest.mark.parametrize("place", ["far"], indirect=True)
@pytest.mark.parametrize("fall", [fall for fall in FALLS.values() if fall.live_restore], indirect=True)
async def test_what_carried_the_way_to_an_agent_does_not_pile_up(
    place: Place, fall: Fall, own: OwnEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_transport, "FAR_COMMAND", (*agent_transport.FAR_COMMAND[:-1], "3"))
    monkeypatch.setattr(multiplexer, "_PING_SECONDS", 0.5)
    inside = await place.create()
    for _ in range(2):
        own.stop(fall.how)
        own.start(live_restore=fall.live_restore)
        await place.provider.resume(inside.sandbox_id)
        again = await place.inside(inside.sandbox_id)

    async with asyncio.timeout(60):
        while int(await again.says("ps -eo args | grep -c '[p]addock-agent trunk'; true")) > 1:
            await asyncio.sleep(0.1)


class Fallible(Contained):
    """A server on the engine that falls."""

    own: OwnEngine

    def another_house(self) -> ServerContext:
        provider = DockerProvider(self.home / "docker", address=self.own.address, images=[IMAGE])
        return build_context(self.settings, clock=self.clock, providers={"docker": provider})


@pytest.fixture
async def world(fall: Fall, own: OwnEngine, tmp_path: Path) -> AsyncIterator[Fallible]:
    Fallible.own = own
    made = Fallible(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}", SystemClock(), PADDOCK_PROVIDER_TIMEOUT=60)
    made.settings.sandbox_provider = "docker"
    await made.start()
    await made.make_accounts()
    yield made
    for sandbox in (await made.context.controller.list(made.admin)).sandboxes:
        await made.context.controller.delete(made.admin, sandbox.sandbox_id)
    await made.stop()


async def test_rows_stay_and_the_next_use_wakes_what_was_stopped(world: Fallible, fall: Fall, own: OwnEngine) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    assert await world.says(sandbox_id, "echo kept > file; cat file") == "kept"
    own.stop(fall.how)
    await world.context.reconciler.sweep()  # while nobody answers, nothing is called gone
    assert await world.state(sandbox_id) is State.RUNNING
    own.start(live_restore=fall.live_restore)
    await world.context.reconciler.sweep()
    assert await world.state(sandbox_id) is (State.RUNNING if fall.live_restore else State.PAUSED)
    assert await world.says(sandbox_id, "cat file") == "kept"
    assert await world.state(sandbox_id) is State.RUNNING
