"""A real server on a real port, with each provider, and one sandbox in it that everybody shares."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from paddock.accounts.first_key import first_key
from paddock.clock import SystemClock
from paddock.providers.registry import build_providers
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.api.conftest import LiveServer, running
from tests.envd.box import Box
from tests.support.waiting import PATIENCE_S

NewBox = Callable[..., Awaitable[Box]]


async def end_everything(settings: Settings) -> None:
    """What a test left running would run on for ever: sandboxes outlive their server on purpose."""
    for provider in build_providers(settings, SystemClock(), settings.sandbox_provider or "").values():
        await provider.start()
        try:
            for machine in await provider.list():
                await provider.delete(machine.sandbox_id)
        finally:
            await provider.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("envd")
    settings = Settings(
        _env_file=None,
        PADDOCK_HOME=home,
        SANDBOX_PROVIDER="local",
        PORT=0,
        PADDOCK_POOL_SIZE=0,
        PADDOCK_QUOTA_RPS=0,
    )
    asyncio.run(first_key(settings))
    with running(settings) as live:
        yield live
    asyncio.run(end_everything(settings))
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def context(server: LiveServer) -> ServerContext:
    app: Any = server.server.config.app
    found: ServerContext = app.state.context
    return found


@pytest.fixture
def provider(context: ServerContext) -> str:
    return context.default_provider


@pytest.fixture
async def client(server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
async def new_box(server: LiveServer, client: httpx.AsyncClient, context: ServerContext) -> AsyncIterator[NewBox]:
    made: list[str] = []

    async def make(**fields: Any) -> Box:
        answer = await client.post(
            "/sandboxes/create", json={"user_id": "alice", **fields}, headers={"X-API-Key": server.key}
        )
        assert answer.status_code == 200, answer.text
        sandbox_id = answer.json()["sandbox_id"]
        made.append(sandbox_id)
        key = await key_of(server, sandbox_id)
        return Box(client, sandbox_id, key, context.tokens.access(key))

    yield make
    for sandbox_id in made:
        await client.delete(f"/sandboxes/{sandbox_id}", headers={"X-API-Key": server.key})


@pytest.fixture
async def box(new_box: NewBox) -> Box:
    return await new_box(env={"FROM_SANDBOX": "yes"})


async def key_of(server: LiveServer, sandbox_id: str) -> str:
    """The DNS-safe key, as every E2B client knows it."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.get(f"/sandboxes/{sandbox_id}", headers={"X-API-Key": server.key})
    return str(answer.json()["key"])
