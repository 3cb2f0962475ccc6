"""SQLite: transactions are all or nothing, and whatever takes long does not stop the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from paddock.errors import StoreUnavailable
from paddock.store import database, events, listing, sandboxes, sqlite, write_ahead_log
from paddock.store.database import Store
from paddock.store.listing import ListingFilter
from paddock.store.records import SandboxRow
from tests.support.rows import a_sandbox
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'paddock.db'}")
    await store.open()
    yield store
    await store.close()


async def look_every(store: Store, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its next opening on, when it begins to look."""
    await store.close()
    monkeypatch.setattr(write_ahead_log, "_IDLE_CHECK_INTERVAL_S", seconds)
    await store.open()


async def add(store: Store, row: SandboxRow) -> None:
    async with store.write() as connection:
        await sandboxes.add(connection, row)


async def has(store: Store, row: SandboxRow) -> bool:
    async with store.read() as connection:
        return await sandboxes.get(connection, row.sandbox_id) is not None


async def test_what_raises_in_the_middle_leaves_nothing(lite: Store) -> None:
    row = a_sandbox()
    with pytest.raises(ValueError, match="no"):
        async with lite.write() as connection:
            await sandboxes.add(connection, row)
            raise ValueError("no")
    assert not await has(lite, row)
    await add(lite, row)
    assert await has(lite, row)


async def test_a_row_is_the_same_whether_it_is_read_on_the_loop_or_in_a_thread(lite: Store) -> None:
    """Types are converted by hand on the loop, and by SQLAlchemy in threads: neither may see a difference."""
    row = a_sandbox(metadata={"a": [1, None, "ü"]}, env={"A": "1"}, timeout=7, cpu=2, git_url=None)
    await add(lite, row)
    for timeout in (7, 9):
        async with lite.write() as connection:
            values = {"timeout": timeout, "metadata": {"b": timeout == 7}, "facade_settings": {"c": timeout}}
            assert await sandboxes.patch(connection, row.sandbox_id, **values)
        async with lite.read() as connection:
            by_key = await sandboxes.get(connection, row.sandbox_id)
            (listed,), _ = await listing.page(connection, ListingFilter(), cursor=None, limit=1)
        assert by_key == listed == replace(row, **values)


async def test_the_loop_goes_on_while_a_thread_writes(lite: Store) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with lite.write() as connection:
        before = turns
        slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT max(i) FROM n"
        assert (await connection.execute(text(slow))).scalar_one() == 2_000_000
        assert turns - before > 10
    counting.cancel()


async def test_a_write_that_is_cancelled_in_a_thread_leaves_nothing_and_the_next_one_works(lite: Store) -> None:
    row = a_sandbox()
    begun = asyncio.Event()

    async def write() -> None:
        async with lite.write() as connection:
            await sandboxes.add(connection, row)
            begun.set()
            slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT 1 FROM n"
            await connection.execute(text(slow))

    writing = asyncio.create_task(write())
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not await has(lite, row)
    await add(lite, row)
    assert await has(lite, row)


async def test_a_statement_with_other_columns_is_another_statement(lite: Store) -> None:
    row = a_sandbox()
    await add(lite, row)
    async with lite.write() as connection:
        await sandboxes.patch(connection, row.sandbox_id, timeout=11)
        await sandboxes.patch(connection, row.sandbox_id, reason="because")
        found = await sandboxes.get(connection, row.sandbox_id)
    assert found is not None and (found.timeout, found.reason) == (11, "because")


async def test_events_come_in_one_go_and_in_order(lite: Store) -> None:
    row = a_sandbox()
    await add(lite, row)
    async with lite.write() as connection:
        new = [(f"kind.{number}", {"n": number}) for number in range(3)]
        assert await events.append(connection, row.sandbox_id, 5.0, *new) == row.timeout
        assert await events.append(connection, row.sandbox_id, 6.0) == row.timeout, "none is not an error"
        found = await events.after(connection, row.sandbox_id, 0, 10)
    assert [(event.type, event.data) for event in found] == new


async def test_what_is_there_already_is_an_integrity_error(lite: Store) -> None:
    row = a_sandbox()
    await add(lite, row)
    with pytest.raises(IntegrityError):
        await add(lite, row)
    await add(lite, a_sandbox(sandbox_id="other_00000000", key="i" + "z" * 20))


async def test_a_file_that_was_moved_away_is_not_written_to(lite: Store) -> None:
    assert lite.file is not None
    row = a_sandbox()
    await add(lite, row)
    aside = lite.file.with_name("aside.db")
    lite.file.rename(aside)
    with pytest.raises(StoreUnavailable, match="moved away"):
        await add(lite, a_sandbox(sandbox_id="other_00000000", key="i" + "z" * 20))
    with pytest.raises(StoreUnavailable, match="moved away"):
        async with lite.read() as connection:
            await sandboxes.get(connection, row.sandbox_id)
    aside.rename(lite.file)
    async with lite.read() as connection:
        assert await sandboxes.get(connection, row.sandbox_id) == row


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
    await asyncio.wait_for(writing, PATIENCE_S)
    assert await has(lite, row)


async def test_a_lock_that_stays_is_an_error_in_the_end(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lite.file is not None
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_S", 0.05)
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
    monkeypatch.setattr(write_ahead_log, "_CHECKPOINT_COMMITS", 10)
    log = lite.file.with_name(lite.file.name + "-wal")
    sizes = []
    for _ in range(12):
        for _ in range(10):
            await add(lite, a_sandbox(metadata={"fill": "x" * 4000}))
        assert lite._log is not None
        if lite._log._checkpoint is not None:
            await lite._log._checkpoint
        sizes.append(log.stat().st_size)
    assert max(sizes) < 3 * sizes[0], "a log that is moved is written from its beginning again"


async def test_the_log_stays_small_while_others_write_without_a_pause(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is moved over while it grows is never moved over completely: it has to be emptied now and then."""
    assert lite.file is not None
    limit = 1 << 20
    monkeypatch.setattr(write_ahead_log, "_CHECKPOINT_COMMITS", 20)
    monkeypatch.setattr(write_ahead_log, "LIMIT_BYTES", limit)
    largest = written = 0

    async def writer() -> None:
        nonlocal largest, written
        for _ in range(400):
            written += 1
            fill = {"fill": "x" * 20_000}
            await add(lite, a_sandbox(sandbox_id=f"alice_{written:08x}", key=f"i{written:020}", metadata=fill))
            await asyncio.sleep(0)  # the checkpoint's own task, and other writers, have their turn
            largest = max(largest, sqlite.wal_bytes(lite.file or Path()))

    await asyncio.gather(*(writer() for _ in range(4)))
    assert written * 20_000 > 20 * limit
    assert largest < 12 * limit, "with what four writers add during one checkpoint on a slow disk"


async def test_an_idle_database_has_an_empty_log(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lite.file is not None
    await look_every(lite, 0.05, monkeypatch)
    rows = [a_sandbox(metadata={"fill": "x" * 4000}) for _ in range(20)]
    for row in rows:
        await add(lite, row)
    assert sqlite.wal_bytes(lite.file) > 0
    await until(lambda: not sqlite.wal_bytes(lite.file or Path()))
    assert all([await has(lite, row) for row in rows])


async def test_transactions_that_change_nothing_do_not_delay_the_wiping_of_secrets(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler claims due deadlines several times a second, and hardly ever finds one."""
    await look_every(lite, 0.2, monkeypatch)
    row = a_sandbox(env={"SECRET": "x" * 4000})
    await add(lite, row)
    async with lite.write() as connection:
        assert await sandboxes.patch(connection, row.sandbox_id, env={})
    async with asyncio.timeout(write_ahead_log._WIPE_DEADLINE_S / 2):
        while sqlite.wal_bytes(lite.file or Path()):
            async with lite.write() as connection:
                assert not await sandboxes.patch(connection, "nobody_00000000", timeout=5)
            await asyncio.sleep(0)


async def test_heartbeats_do_not_keep_a_large_log(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lite.file is not None
    for row in [a_sandbox(metadata={"fill": "x" * 60_000}) for _ in range(40)]:
        await add(lite, row)
    assert sqlite.wal_bytes(lite.file) > 2 << 20
    monkeypatch.setattr(write_ahead_log, "_IDLE_CHECK_INTERVAL_S", 0.2)
    async with asyncio.timeout(PATIENCE_S):
        while sqlite.wal_bytes(lite.file) > 1 << 20:
            await add(lite, a_sandbox())
            await asyncio.sleep(0.05)
