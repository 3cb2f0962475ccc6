"""The database locked, full or gone under a serving app: 503, nothing half-done, and well again without a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

import paddock.store.database
from paddock.server.context import ServerContext
from paddock.settings import Settings
from tests.api.conftest import assert_error

CREATE = {"user_id": "alice"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddock.store.database, "_BUSY_TIMEOUT_S", 0.05)


@contextmanager
def gone(settings: Settings) -> Iterator[None]:
    """As when a volume is lost, and comes back."""
    family = {path: path.with_name("away-" + path.name) for path in settings.home.glob("paddock.db*")}
    family = {path: away for path, away in family.items() if path.suffix != ".lock"}
    for path, away in family.items():
        path.rename(away)
    try:
        yield
    finally:
        for path, away in family.items():
            away.rename(path)


@asynccontextmanager
async def locked(settings: Settings) -> AsyncIterator[None]:
    other = sqlite3.connect(settings.home / "paddock.db", isolation_level=None, check_same_thread=False)
    # In a thread: the app may be in the middle of a transaction, and needs this loop to finish it.
    await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def machines(context: ServerContext) -> set[str]:
    return {found.sandbox_id for found in await context.providers["local"].list()}


async def test_gone(client: httpx.AsyncClient, sandbox: str, settings: Settings, context: ServerContext) -> None:
    before = await machines(context)
    with gone(settings):
        for _ in range(3):
            assert_error(await client.post("/sandboxes/create", json=CREATE), 503, "database_unavailable")
            assert_error(await client.get(f"/sandboxes/{sandbox}/status"), 503, "database_unavailable")
            run = {"sandbox_id": sandbox, "command": "true"}
            assert_error(await client.post("/sandboxes/run-command", json=run), 503, "database_unavailable")
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "degraded")
        assert not Path(settings.home / "paddock.db").exists()
    assert await machines(context) == before, "a create that was refused must leave nothing behind"
    assert (await client.get(f"/sandboxes/{sandbox}/status")).json()["status"] == "running"
    made = await client.post("/sandboxes/create", json=CREATE)
    assert made.status_code == 200
    await client.delete(f"/sandboxes/{made.json()['sandbox_id']}")


async def test_locked(client: httpx.AsyncClient, sandbox: str, settings: Settings, context: ServerContext) -> None:
    before = await machines(context)
    async with locked(settings):
        refused = await client.post("/sandboxes/create", json=CREATE)
        assert_error(refused, 503, "database_unavailable")
        assert refused.headers["retry-after"]
        assert (await client.get(f"/sandboxes/{sandbox}/status")).status_code == 200, "reading goes on"
    assert await machines(context) == before
    assert (await client.post("/sandboxes/pause", json={"sandbox_id": sandbox})).status_code == 200


async def test_full(client: httpx.AsyncClient, sandbox: str, context: ServerContext) -> None:
    async with context.store.write() as connection:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        await connection.execute(text(f"PRAGMA max_page_count={pages}"))
    before = await machines(context)
    refused = 0
    for number in range(40):
        body = {**CREATE, "metadata": {"fill": "x" * 15_000, "n": number}}
        answer = await client.post("/sandboxes/create", json=body)
        if answer.status_code == 503:
            assert_error(answer, 503, "database_unavailable")
            refused += 1
    assert refused, "the database never was full: the test needs more"
    async with context.store.write() as connection:
        await connection.execute(text("PRAGMA max_page_count=1000000"))
    await context.reconciler.run_once()
    listed = (await client.get("/sandboxes")).json()["sandboxes"]
    assert {box["status"] for box in listed} == {"running"}
    assert await machines(context) == {box["sandbox_id"] for box in listed} >= before
    for box in listed:
        await client.delete(f"/sandboxes/{box['sandbox_id']}")
