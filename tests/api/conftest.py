"""The app in-process over ASGI, and for streams and WebSockets a real server on a real port."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.api.server import Server, make_server
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.support import leaks, local_home
from tests.support.waiting import PATIENCE_S

MakeSandbox = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def prepared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its first key, made once and copied for every test."""
    home = tmp_path_factory.mktemp("prepared") / "home"
    asyncio.run(first_key(Settings(_env_file=None, PADDOCK_HOME=home)))
    return home


def settings_of(home: Path, **more: Any) -> Settings:
    """Of a server on the local provider that makes nothing in advance, in a home that is there."""
    local_home.lay_out(home)
    return Settings(
        _env_file=None, PADDOCK_HOME=home, SANDBOX_PROVIDER="local", PORT=0, **{"PADDOCK_POOL_SIZE": 0, **more}
    )


@pytest.fixture
def settings(tmp_path: Path, prepared_home: Path) -> Iterator[Settings]:
    shutil.copytree(prepared_home, tmp_path / "home")
    settings = settings_of(tmp_path / "home", PADDOCK_DOMAIN="box.test")
    yield settings
    asyncio.run(local_home.clear(settings.home))
    leaks.check_home(settings.home)


@pytest.fixture
async def key(settings: Settings) -> str:
    return settings.key_file.read_text().strip()


@pytest.fixture
async def app(settings: Settings, key: str) -> AsyncIterator[FastAPI]:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
def context(app: FastAPI) -> ServerContext:
    context: ServerContext = app.state.context
    return context


@asynccontextmanager
async def speaking_to(app: FastAPI, key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if key is None else {"X-API-Key": key}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://paddock.test", headers=headers) as client:
        yield client


@pytest.fixture
async def client(app: FastAPI, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """The admin."""
    async with speaking_to(app, key) as client:
        yield client


@pytest.fixture
async def stranger(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Nobody we know: no key."""
    async with speaking_to(app) as client:
        yield client


@pytest.fixture
async def member(app: FastAPI, client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """Another user, an ordinary one."""
    made = await client.post("/keys", json={"name": "mallory"})
    async with speaking_to(app, made.json()["key"]) as client:
        yield client


@pytest.fixture
async def new_sandbox(client: httpx.AsyncClient) -> AsyncIterator[MakeSandbox]:
    made = []

    async def make(**fields: Any) -> str:
        answer = await client.post("/sandboxes/create", json={"user_id": "alice", **fields})
        assert answer.status_code == 200, answer.text
        made.append(answer.json()["sandbox_id"])
        return str(made[-1])

    yield make
    for sandbox_id in made:
        await client.delete(f"/sandboxes/{sandbox_id}")


@pytest.fixture
async def sandbox(new_sandbox: MakeSandbox) -> str:
    return await new_sandbox()


@dataclass(frozen=True)
class LiveServer:
    url: str
    key: str
    server: Server

    def stop(self) -> None:
        """As a signal would."""
        self.server.should_exit = True

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.key}

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=PATIENCE_S)


@contextmanager
def running(settings: Settings) -> Iterator[LiveServer]:
    """A real uvicorn in a thread of its own."""
    server = make_server(create_app(settings), settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield LiveServer(f"http://127.0.0.1:{port}", settings.key_file.read_text().strip(), server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def live_server(settings: Settings) -> Iterator[LiveServer]:
    with running(settings) as server:
        yield server


@pytest.fixture
async def live_sandbox(live_server: LiveServer) -> AsyncIterator[str]:
    async with live_server.client() as client:
        made = await client.post("/sandboxes/create", json={"user_id": "alice"})
        yield made.json()["sandbox_id"]
        if not live_server.server.should_exit:
            await client.post("/sandboxes/delete", json={"sandbox_id": made.json()["sandbox_id"]})


def assert_error(answer: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """The one shape of every failure."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"success", "error"}
    assert body["success"] is False
    error: dict[str, Any] = body["error"]
    assert set(error) == {"code", "message", "status", "details", "request_id"}
    assert error["status"] == status
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error["message"]
    if code is not None:
        assert error["code"] == code
    return error
