"""Daytona's API in-process, over a house whose clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.accounts.accounts import Principal
from paddock.api.app import create_app
from paddock.clock import ManualClock
from paddock.models import CreateKey, Role
from tests.support.world import World

Json = dict[str, Any]


@dataclass
class Daytona:
    """A client of the control plane and the toolbox, and the world behind them."""

    world: World
    http: httpx.AsyncClient
    who: Principal

    async def create(self, **fields: Any) -> httpx.Response:
        return await self.http.post("/api/sandbox", json=fields)

    async def new(self, **fields: Any) -> Json:
        answer = await self.create(**fields)
        assert answer.status_code == 200, answer.text
        made: Json = answer.json()
        return made

    async def info(self, name: str) -> Json:
        answer = await self.http.get(f"/api/sandbox/{name}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def state(self, name: str) -> str:
        answer = await self.http.get(f"/api/sandbox/{name}")
        return "gone" if answer.status_code == 404 else str(answer.json()["state"])

    async def act(self, name: str, what: str, **query: Any) -> httpx.Response:
        return await self.http.post(f"/api/sandbox/{name}/{what}", params=query)

    async def names(self, **query: Any) -> list[str]:
        answer = await self.http.get("/api/sandbox", params=query)
        assert answer.status_code == 200, answer.text
        return [item["name"] for item in answer.json()["items"]]

    async def run(self, name: str, command: str, **fields: Any) -> Json:
        answer = await self.http.post(f"/toolbox/{name}/process/execute", json={"command": command, **fields})
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def pass_time(self, seconds: float) -> None:
        """And let what is due strike."""
        await self.world.pass_time(seconds)
        await self.world.context.scheduler.tick()


def refused(answer: httpx.Response, status: int, message: str, code: str | None = None) -> Json:
    """Checks the one shape of failures; answers the body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: Json = answer.json()
    assert {"statusCode", "message", "error", "code", "source", "timestamp", "path"} <= set(body)
    assert body["statusCode"] == status
    assert message in body["message"]
    assert body["source"] in ("DAYTONA_API", "DAYTONA_DAEMON")
    if code is not None:
        assert body["code"] == code
    return body


async def _daytona(world: World, name: str, role: Role = Role.MEMBER) -> AsyncIterator[Daytona]:
    accounts = world.context.accounts
    root = Principal("root", Role.ADMIN, 0, world.admin.quota)
    _, secret = await accounts.create_key(root, CreateKey(name=name, role=role))
    transport = httpx.ASGITransport(create_app(context=world.context))
    headers = {"Authorization": f"Bearer {secret}"}
    base = "http://paddock.test/daytona"
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=60) as http:
        yield Daytona(world, http, await accounts.authenticate(secret))


async def _world(home: Path, database_url: str) -> AsyncIterator[World]:
    world = World(home, database_url, PADDOCK_DOMAIN="box.test", PADDOCK_DEFAULT_DISK_MB=1024)
    await world.start()
    await world.make_accounts()
    yield world
    await world.end()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async for each in _world(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}"):
        yield each


@pytest.fixture
async def daytona(world: World) -> AsyncIterator[Daytona]:
    async for each in _daytona(world, "erin"):
        yield each


@pytest.fixture
async def other(world: World) -> AsyncIterator[Daytona]:
    """Another user on the same server."""
    async for each in _daytona(world, "frank"):
        yield each


@pytest.fixture
async def on_both(tmp_path: Path, database_url: str) -> AsyncIterator[Daytona]:
    """The same on SQLite and on PostgreSQL, for what is decided in SQL."""
    async for world in _world(tmp_path, database_url):
        async for each in _daytona(world, "erin"):
            yield each


@pytest.fixture
def now(world: World) -> float:
    assert isinstance(world.clock, ManualClock)
    return world.clock.now()
