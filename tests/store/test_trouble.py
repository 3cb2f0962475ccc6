"""A database that is locked, full or gone: a clear 503, nothing half-done, and recovery without a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

import paddock.store.database as database
from paddock.errors import StoreUnavailable
from paddock.store import postgres, sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow
from tests.support.postgres import Postgres
from tests.support.rows import a_sandbox


@pytest.fixture
async def lite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_S", 0.05)
    store = Store(f"sqlite:///{tmp_path / 'paddock.db'}")
    await store.open()
    yield store
    await store.close()


async def add(store: Store, row: SandboxRow) -> None:
    async with store.write() as connection:
        await sandboxes.add(connection, row)


async def has(store: Store, row: SandboxRow) -> bool:
    async with store.read() as connection:
        return await sandboxes.get(connection, row.sandbox_id) is not None


async def test_locked(lite: Store) -> None:
    row = a_sandbox()
    assert lite.file is not None
    other = sqlite3.connect(lite.file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await add(lite, row)
    other.execute("ROLLBACK")
    other.close()
    assert not await has(lite, row)
    await add(lite, row)
    assert await has(lite, row)


async def test_full(lite: Store) -> None:
    big = a_sandbox(metadata={"fill": "x" * 2_000_000})
    async with lite.write() as connection:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        await connection.execute(text(f"PRAGMA max_page_count={pages + 20}"))
    with pytest.raises(StoreUnavailable, match="full"):
        await add(lite, big)
    assert not await has(lite, big)
    async with lite.write() as connection:
        await connection.execute(text("PRAGMA max_page_count=1000000"))
    await add(lite, big)
    assert await has(lite, big)


async def test_gone_and_back(lite: Store) -> None:
    row, later = a_sandbox(), a_sandbox()
    await add(lite, row)
    assert lite.file is not None
    # Move the whole family away, as a lost volume would.
    away = {path: path.with_name("away-" + path.name) for path in lite.file.parent.glob("paddock.db*")}
    for path, target in away.items():
        path.rename(target)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await has(lite, row)
        with pytest.raises(StoreUnavailable):
            await add(lite, later)
    assert not lite.file.exists(), "a vanished database must not be replaced by an empty one"
    for path, target in away.items():
        target.rename(path)
    assert await has(lite, row)
    await add(lite, later)
    assert await has(lite, later)


async def test_a_server_that_does_not_answer(postgres: Postgres) -> None:
    store = Store("postgresql://tester@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable):
        await store.open()


async def test_connections_that_the_server_dropped(postgres: Postgres) -> None:
    store = Store(await postgres.new_database())
    await store.open()
    row = a_sandbox()
    await add(store, row)
    with pytest.raises(StoreUnavailable):
        async with store.write() as connection:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert await has(store, row)
    await store.close()


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
def test_a_url_that_cannot_work_says_what_would(url: str) -> None:
    with pytest.raises(ValueError, match="DATABASE_URL"):
        Store(url)


def test_tls_is_verified_wherever_it_is_demanded() -> None:
    import ssl

    for mode in ("require", "verify-ca", "verify-full"):
        context = postgres.tls(database._normalized(f"postgresql://host/db?sslmode={mode}"))["ssl"]
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname is (mode != "verify-ca")
