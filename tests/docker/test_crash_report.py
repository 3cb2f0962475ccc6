"""A container that ends by itself: what its engine tells of that, and what clients hear at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.models import State
from paddock.providers.base import CRASHED
from paddock.providers.docker import handle
from paddock.providers.docker.address import Address
from paddock.providers.docker.engine import DockerEngine
from paddock.providers.docker.handle import crash_report
from tests.docker import engine
from tests.docker.fake_engine import SILENCE, FakeEngine, Said
from tests.docker.place import Place
from tests.docker.test_server import Contained, world
from tests.support.waiting import until

__all__ = ["world"]

_WAIT, _INSPECT = "POST /containers/box/wait", "GET /containers/box/json"
_ENDED: Said = (200, {"StatusCode": 137})


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(tmp_path, {_WAIT: _ENDED}) as made:
        yield made


@pytest.fixture
async def client(fake: FakeEngine) -> AsyncIterator[DockerEngine]:
    made = DockerEngine(Address.parse(fake.host), seconds=20)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("code", "oom_killed", "reason", "words"),
    [
        (137, False, "killed", "was killed by SIGKILL. Its files are kept"),
        (137, True, "out_of_memory", "was killed by SIGKILL. The kernel had killed processes in it for want of memory"),
        (139, False, "crashed", "was killed by SIGSEGV"),
        (1, False, "crashed", "exited with 1"),
        (0, True, "crashed", "exited with 0. The kernel had killed"),
        (255, False, "crashed", "exited with 255"),
    ],
)
async def test_the_engine_says_how_it_ended(
    fake: FakeEngine, client: DockerEngine, code: int, oom_killed: bool, reason: str, words: str
) -> None:
    fake.answers[_INSPECT] = (200, {"State": {"Running": False, "ExitCode": code, "OOMKilled": oom_killed}})
    told = await crash_report(client, "box")
    assert told is not None
    assert (told["reason"], told["exit_code"], told["oom_killed"]) == (reason, code, oom_killed)
    assert words in told["message"]


async def test_a_container_that_was_removed_has_not_crashed(fake: FakeEngine, client: DockerEngine) -> None:
    assert await crash_report(client, "box") is None, "it went in between"
    del fake.answers[_WAIT]
    assert await crash_report(client, "box") is None


async def test_a_container_that_runs_has_not_crashed(
    fake: FakeEngine, client: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers[_INSPECT] = (200, {"State": {"Running": True, "ExitCode": 0}})
    assert await crash_report(client, "box") is None, "somebody has started it again"
    fake.answers[_WAIT] = SILENCE
    monkeypatch.setattr(handle, "END_TIMEOUT_S", 0.05)
    assert await crash_report(client, "box") is None, "only the connection to it was cut"


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
async def test_a_killed_agent_is_told_at_once_with_the_reason(tmp_path: Path, far: bool) -> None:
    place = Place(tmp_path, engine.address(), way="far" if far else "near")
    told: asyncio.Queue[tuple[str, str, Mapping[str, Any]]] = asyncio.Queue()

    async def hear(*notice: Any) -> None:
        told.put_nowait(notice)

    place.provider.tell(hear)
    await place.provider.start()
    inside, deleted = await place.create(), await place.create()
    await place.provider.delete(deleted.sandbox_id)
    engine.call("POST", f"/containers/{await place.container(inside.sandbox_id)}/kill").raise_for_status()
    async with asyncio.timeout(60):
        sandbox_id, kind, data = await told.get()
    assert (sandbox_id, kind, data["reason"], data["exit_code"]) == (inside.sandbox_id, CRASHED, "killed", 137)
    await place.provider.resume(inside.sandbox_id)
    assert await (await place.inside(inside.sandbox_id)).says("echo here") == "here"
    await place.clear()
    assert told.empty(), "what was asked for is no crash"


async def test_status_and_events_tell_of_a_killed_agent_without_a_sweep(world: Contained) -> None:
    sandbox_id = (await world.create()).sandbox.sandbox_id
    engine.call("POST", f"/containers/{(await world.row(sandbox_id)).reference}/kill").raise_for_status()

    async def paused() -> bool:
        return await world.state(sandbox_id) is State.PAUSED

    await until(paused)
    row = await world.row(sandbox_id)
    assert "was killed by SIGKILL" in (row.reason or "")
    crashed = [event.data for event in await world.events(sandbox_id) if event.type == CRASHED]
    assert [data["reason"] for data in crashed] == ["killed"]
    assert await world.says(sandbox_id, "echo here") == "here"
