"""When the sandbox goes: what those hear who are inside, and those who come later."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.conftest import LiveServer
from tests.envd.box import ENVD, Box, Events
from tests.envd.conftest import NewBox
from tests.support.waiting import PATIENCE_S

CONNECT = "process.Process/Connect"


async def native(server: LiveServer, client: httpx.AsyncClient, path: str, box: Box) -> httpx.Response:
    answer = await client.post(path, json={"sandbox_id": box.sandbox_id}, headers={"X-API-Key": server.key})
    assert answer.status_code == 200, answer.text
    return answer


async def not_found(box: Box) -> None:
    for path in ("/health", "/envs", "/files"):
        answer = await box.client.get(path, headers=box.headers())
        assert (answer.status_code, answer.json()) == (
            502,
            {"sandboxId": box.key, "message": "The sandbox was not found", "code": 502},
        )
    assert (await box.call("process.Process/List")).status_code == 502


async def broken(stream: Events) -> None:
    """The connection is cut: no last envelope, no last chunk."""
    with pytest.raises(httpx.RemoteProtocolError):
        async with asyncio.timeout(PATIENCE_S):
            items = await stream.rest()
            raise AssertionError(items)


@pytest.mark.parametrize("how", ["/sandboxes/delete", "/sandboxes/pause"])
async def test_streams_are_cut_when_the_sandbox_goes(
    new_box: NewBox, server: LiveServer, client: httpx.AsyncClient, how: str
) -> None:
    box = await new_box(auto_resume=False)
    async with (
        box.running("echo ready; sleep 100") as command,
        box.stream("filesystem.Filesystem/WatchDir", {"path": "/tmp"}) as watch,
    ):
        await command.pid()
        await command.until(b"ready")
        await anext(watch)
        await native(server, client, how, box)
        await asyncio.gather(broken(command), broken(watch))
    await not_found(box)


async def test_an_unknown_sandbox_is_not_found(client: httpx.AsyncClient, server: LiveServer) -> None:
    await not_found(Box(client, "", "i00000000000000000000", "token"))


async def test_a_paused_sandbox_wakes_for_who_holds_its_token(
    new_box: NewBox, server: LiveServer, client: httpx.AsyncClient
) -> None:
    box = await new_box()
    async with box.running("echo ready; sleep 100; true") as stream:
        pid = await stream.pid()
        await native(server, client, "/sandboxes/pause", box)
    denied = await client.get("/envs", headers={"E2b-Sandbox-Id": box.key, "E2b-Sandbox-Port": ENVD})
    assert denied.status_code == 401
    assert await state(server, client, box) == "paused"
    assert (await box.run("echo awake")).stdout == "awake\n"
    assert await state(server, client, box) == "running"
    if server.server.config.app.state.context.default_provider == "local":  # type: ignore[union-attr]
        async with box.stream(CONNECT, {"process": {"pid": pid}}) as stream:
            assert await stream.pid() == pid
        assert [entry["pid"] for entry in (await box.ok("process.Process/List"))["processes"]] == [pid]


async def test_a_paused_sandbox_that_does_not_wake_is_not_found(
    new_box: NewBox, server: LiveServer, client: httpx.AsyncClient
) -> None:
    box = await new_box(auto_resume=False)
    await native(server, client, "/sandboxes/pause", box)
    await not_found(box)
    await native(server, client, "/sandboxes/resume", box)
    assert (await box.run("echo back")).stdout == "back\n"


async def test_a_watcher_goes_on_after_a_pause(new_box: NewBox, server: LiveServer, client: httpx.AsyncClient) -> None:
    box = await new_box()
    watcher = (await box.ok("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}))["watcherId"]
    await native(server, client, "/sandboxes/pause", box)
    await native(server, client, "/sandboxes/resume", box)
    await box.put("/tmp/file", b"x")
    events = (await box.ok("filesystem.Filesystem/GetWatcherEvents", {"watcherId": watcher}))["events"]
    assert events[0] == {"name": "file", "type": "EVENT_TYPE_CREATE"}


async def test_commands_and_bytes_are_counted(box: Box, server: LiveServer, client: httpx.AsyncClient) -> None:
    await box.run("echo hello")
    await box.put("/tmp/file", b"12345")
    answer = await client.get(f"/sandboxes/{box.sandbox_id}/usage", headers={"X-API-Key": server.key})
    usage: dict[str, Any] = answer.json()
    assert usage["total"]["commands"] == 1, usage
    events = await client.get(f"/sandboxes/{box.sandbox_id}/events", headers={"X-API-Key": server.key})
    kinds = [event["type"] for event in events.json()["events"]]
    assert kinds[-2:] == ["command.finished", "file.written"]


async def state(server: LiveServer, client: httpx.AsyncClient, box: Box) -> str:
    answer = await client.get(f"/sandboxes/{box.sandbox_id}", headers={"X-API-Key": server.key})
    return str(answer.json()["status"])
