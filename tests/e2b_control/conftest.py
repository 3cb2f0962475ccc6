"""E2B's control plane in-process, over a house whose clock stands still until a test moves it."""

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
class Control:
    """A client of the control plane, and the world behind it."""

    world: World
    http: httpx.AsyncClient
    who: Principal

    async def create(self, *, v1: bool = False, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        path = "/sandboxes" if v1 else "/v2/sandboxes"
        return await self.http.post(path, json={"templateID": "base", **fields}, headers=headers)

    async def new(self, **fields: Any) -> str:
        answer = await self.create(**fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["sandboxID"])

    async def info(self, key: str) -> Json:
        answer = await self.http.get(f"/sandboxes/{key}")
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def connect(self, key: str, **fields: Any) -> httpx.Response:
        return await self.http.post(f"/v2/sandboxes/{key}/connect", json=fields)

    async def pause(self, key: str, **fields: Any) -> httpx.Response:
        return await self.http.post(f"/sandboxes/{key}/pause", json=fields)

    async def pass_time(self, seconds: float) -> None:
        """And let what is due strike."""
        await self.world.pass_time(seconds)
        await self.world.context.scheduler.tick()

    async def sandbox_id(self, key: str) -> str:
        return (await self.world.context.controller.by_key(key)).sandbox_id


def refused(answer: httpx.Response, status: int, message: str) -> Json:
    """Checks the one shape of failures; answers the body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: Json = answer.json()
    assert set(body) <= {"code", "message", "error_code"}
    assert body["code"] == status
    assert message in body["message"]
    return body


async def _control(world: World, name: str, role: Role = Role.MEMBER) -> AsyncIterator[Control]:
    accounts = world.context.accounts
    root = Principal("root", Role.ADMIN, 0, world.admin.quota)
    _, secret = await accounts.create_key(root, CreateKey(name=name, role=role))
    transport = httpx.ASGITransport(create_app(context=world.context))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://paddock.test/e2b", headers={"X-API-KEY": secret}
    ) as http:
        yield Control(world, http, await accounts.authenticate(secret))


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
async def control(world: World) -> AsyncIterator[Control]:
    async for each in _control(world, "erin"):
        yield each


@pytest.fixture
async def other(world: World) -> AsyncIterator[Control]:
    """Another user on the same server."""
    async for each in _control(world, "frank"):
        yield each


@pytest.fixture
async def admin(world: World) -> AsyncIterator[Control]:
    async for each in _control(world, "grace", Role.ADMIN):
        yield each


@pytest.fixture
async def on_both(tmp_path: Path, database_url: str) -> AsyncIterator[Control]:
    """The same on SQLite and on PostgreSQL, for what is decided in SQL."""
    async for world in _world(tmp_path, database_url):
        async for each in _control(world, "erin"):
            yield each


@pytest.fixture
def now(world: World) -> float:
    assert isinstance(world.clock, ManualClock)
    return world.clock.now()
