"""Short transactions that run where they are asked for: all or nothing, and never the ones to hold up the loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import paddock.store.database as database
from paddock.errors import StoreUnavailable
from paddock.store import sandboxes
from paddock.store.database import Store
from paddock.store.records import Sandbox
from tests.support.rows import a_sandbox


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'paddock.db'}")
    await store.open()
    yield store
    await store.close()


async def add(store: Store, row: Sandbox) -> None:
    async with store.write(swift=True) as connection:
        await sandboxes.add(connection, row)


async def has(store: Store, row: Sandbox) -> bool:
    async with store.read() as connection:
        return await sandboxes.get(connection, row.sandbox_id) is not None


async def test_what_raises_in_the_middle_leaves_nothing(lite: Store) -> None:
    row = a_sandbox()
    with pytest.raises(ValueError, match="no"):
        async with lite.write(swift=True) as connection:
            await sandboxes.add(connection, row)
            raise ValueError("no")
    assert not await has(lite, row)
    await add(lite, row)
    assert await has(lite, row)


async def test_a_lock_of_another_is_waited_for_without_stopping_the_loop(lite: Store) -> None:
    row = a_sandbox()
    assert lite.file is not None
    other = sqlite3.connect(lite.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(add(lite, row))
    for _ in range(20):  # a loop that stood still would not come this far before the lock is gone
        await asyncio.sleep(0.005)
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    await asyncio.wait_for(writing, 5)
    assert await has(lite, row)


async def test_a_lock_that_stays_is_an_error_in_the_end(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lite.file is not None
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.05)
    await lite.close()
    await lite.open()
    other = sqlite3.connect(lite.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await add(lite, a_sandbox())
    other.execute("ROLLBACK")
    other.close()


async def test_the_log_is_moved_into_the_database_now_and_then(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own checkpoints are off: without ours the log would grow for ever."""
    assert lite.file is not None
    monkeypatch.setattr(database, "_CHECKPOINT_COMMITS", 10)
    log = lite.file.with_name(lite.file.name + "-wal")
    sizes = []
    for _ in range(12):
        for _ in range(10):
            await add(lite, a_sandbox(metadata={"fill": "x" * 4000}))
        if lite._checkpoint is not None:
            await lite._checkpoint
        sizes.append(log.stat().st_size)
    assert max(sizes) < 3 * sizes[0], "a log that is moved is written from its beginning again"
