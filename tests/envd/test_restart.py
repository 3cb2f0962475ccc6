"""A new server finds what the old one's clients have started; the old one stops, whoever is listening."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from paddock.accounts.first_key import first_key
from paddock.settings import Settings
from tests.api.conftest import LiveServer, running
from tests.envd.box import Box
from tests.envd.conftest import end_everything
from tests.support.waiting import PATIENCE_S


async def a_box(server: LiveServer, client: httpx.AsyncClient, sandbox_id: str | None = None) -> Box:
    headers = {"X-API-Key": server.key}
    if sandbox_id is None:
        made = await client.post("/sandboxes/create", json={"user_id": "alice"}, headers=headers)
        sandbox_id = made.json()["sandbox_id"]
    key = (await client.get(f"/sandboxes/{sandbox_id}", headers=headers)).json()["key"]
    app = server.server.config.app
    return Box(client, sandbox_id, key, app.state.context.tokens.access(key))  # type: ignore[union-attr]


async def test_processes_tags_and_tokens_outlive_the_server(tmp_path: Path) -> None:
    settings = Settings(
        _env_file=None,
        PADDOCK_HOME=tmp_path,
        SANDBOX_PROVIDER="local",
        PORT=0,
        PADDOCK_DRAIN_TIMEOUT=2 * PATIENCE_S,  # a stream is given none of it
    )
    await first_key(settings)
    process = {"cmd": "/bin/bash", "args": ["-c", "read x; exit 6"], "envs": {"A": "b"}, "cwd": "/tmp"}
    try:
        with running(settings) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
                first = await a_box(server, client)
                async with first.stream("process.Process/Start", {"process": process, "tag": "kept"}) as stream:
                    pid = await stream.pid()
                    server.stop()
                    async with asyncio.timeout(PATIENCE_S):
                        with pytest.raises(httpx.RemoteProtocolError):
                            await stream.rest()
        with running(settings) as server:
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
                again = await a_box(server, client, first.sandbox_id)
                assert again.token == first.token
                listed = (await again.ok("process.Process/List"))["processes"]
                assert listed == [{"config": process, "pid": pid, "tag": "kept"}]
                async with again.stream("process.Process/Connect", {"process": {"tag": "kept"}}) as stream:
                    assert await stream.pid() == pid
                    await again.ok(
                        "process.Process/SendInput", {"process": {"tag": "kept"}, "input": {"stdin": "Cg=="}}
                    )
                    assert (await stream.event())["end"]["exitCode"] == 6
    finally:
        await end_everything(settings)
