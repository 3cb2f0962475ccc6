"""SQLite: one connection that writes, some that read, and where each statement runs.

A prepared statement (:func:`paddock.store.statements.prepared`) runs on the event loop: a change to a thread and back
costs many times the statement. Everything else, lists and sweeps, runs in a thread. Blocking of the loop is short: a
lock held by another process is awaited in a thread before the transaction begins; once it has begun there is no other
writer; readers do not wait; and no commit waits for the disk, because checkpoints are run on a separate connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import QueuePool

from paddock.machine.threads import to_end
from paddock.store import statements
from paddock.store.invalid_rows import loads
from paddock.store.statements import DIALECT, Rows, is_prepared, sqlalchemy_errors

MAX_WAL_BYTES = 128 << 20
"""A write-ahead log beyond this size is out of control: it is several times the size at which writers are slowed
down."""
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # NORMAL loses nothing when the process dies. After a power failure the last transactions may be missing; the
    # reconciler recovers those sandboxes from the providers.
    "PRAGMA synchronous=NORMAL",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA secure_delete=ON",  # overwrite the rows of deleted sandboxes instead of leaving them in free pages
    "PRAGMA wal_autocheckpoint=0",  # checkpoints are run by store.write_ahead_log
)
_READERS = 8
_INLINE_AT_ONCE = 16
"""After so many statements of a transaction on the event loop other tasks have a turn."""
_BEGIN = "BEGIN IMMEDIATE"
_BUSY_RETRY_S = 0.005
_TRUNCATE_WAIT_S = 0.25
"""How long to wait for readers while writers are blocked. A read takes milliseconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Opened:
    """A connection that is kept, and the file that it was opened on."""

    connection: Connection
    raw: sqlite3.Connection
    inode: int


class SqliteDatabase:
    """The connections to one file. Threads use a connection by turns, never at the same time."""

    def __init__(self, file: Path, busy_timeout_s: float) -> None:
        self._file = file
        self._busy_seconds = busy_timeout_s
        self._pool = _pool(file, busy_timeout_s)
        self._read_threads = ThreadPoolExecutor(_READERS, "sqlite-read")
        self._write_thread = ThreadPoolExecutor(1, "sqlite-write")
        self._writer: _Opened | None = None
        self._reader: _Opened | None = None
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        for threads in (self._read_threads, self._write_thread):
            await asyncio.to_thread(threads.shutdown)  # SQLite crashes if a connection in use is closed
        for opened in (self._writer, self._reader):
            if opened is not None:
                opened.connection.close()
        self._writer = self._reader = None
        self._pool.dispose()

    def read(self) -> SqliteReader:
        """Each statement sees its own snapshot."""
        return SqliteReader(self)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqliteWriter]:
        """A write transaction. The caller ensures that no other transaction of this process writes meanwhile."""
        self._writer = opened = self._current(self._writer)
        with sqlalchemy_errors(_BEGIN):
            if not _try_begin(opened.raw):
                await self.in_write_thread(functools.partial(self._begin_with_retries, opened.raw))
        connection = SqliteWriter(self, opened)
        try:
            yield connection
            await connection.commit()
        finally:
            await connection.rollback()

    def inline_reader(self) -> sqlite3.Connection:
        self._reader = opened = self._current(self._reader)
        return opened.raw

    async def in_read_thread(self, call: Callable[[Connection], T]) -> T:
        """Run with a connection of its own, which waits a moment for locks."""

        def run() -> T:
            with self._pool.connect() as connection:
                return call(connection)

        return await self._submit(self._read_threads, run)

    async def in_write_thread(self, call: Callable[[], T]) -> T:
        """If cancelled, ends only when the thread no longer uses the connection."""
        return await to_end(self._submit(self._write_thread, call))

    def _submit(self, threads: ThreadPoolExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
        self._require_open()
        return asyncio.get_running_loop().run_in_executor(threads, call)

    def _current(self, opened: _Opened | None) -> _Opened:
        """The open connection if the file is still the same, else a new one: SQLite would keep using a file that was
        moved or replaced."""
        self._require_open()
        inode = _inode(self._file)
        if opened is not None and opened.inode == inode:
            return opened
        if opened is not None:
            opened.connection.invalidate()
            opened.connection.close()
        connection = self._pool.connect()
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - for the type checker
        raw.execute("PRAGMA busy_timeout=0")  # nothing waits on the event loop
        return _Opened(connection, raw, inode)

    def _require_open(self) -> None:
        if self.closed:
            raise DisconnectionError("the database was closed")

    def _begin_with_retries(self, raw: sqlite3.Connection) -> None:
        until = time.monotonic() + self._busy_seconds
        while time.monotonic() < until:
            time.sleep(_BUSY_RETRY_S)
            if _try_begin(raw):
                return
        raw.execute(_BEGIN)


class SqliteReader:
    """The part of SQLAlchemy's AsyncConnection that the repositories use."""

    dialect = DIALECT

    def __init__(self, database: SqliteDatabase) -> None:
        self.info: dict[str, Any] = {}
        self._database = database

    async def execute(self, statement: Any, parameters: Mapping[str, Any] | list[Any] | None = None) -> Rows:
        if is_prepared(statement):
            try:
                return statements.run(self._database.inline_reader(), statement, parameters or {})
            except DBAPIError as error:
                if not _is_busy(error.orig):
                    raise  # otherwise a thread waits for the lock
        return await self.run_sync(lambda connection: _detached(connection.execute(statement, parameters)))

    async def exec_driver_sql(self, sql: str, parameters: Any = None) -> Rows:
        return await self.run_sync(lambda connection: _detached(connection.exec_driver_sql(sql, parameters)))

    async def run_sync(self, call: Callable[[Connection], T]) -> T:
        return await self._database.in_read_thread(call)


class SqliteWriter(SqliteReader):
    """The same, in a write transaction."""

    def __init__(self, database: SqliteDatabase, opened: _Opened) -> None:
        super().__init__(database)
        self._connection = opened.connection
        self._raw = opened.raw
        self._inline = 0

    @property
    def total_changes(self) -> int:
        """How many rows this connection has changed since it was opened."""
        return self._raw.total_changes

    async def execute(self, statement: Any, parameters: Mapping[str, Any] | list[Any] | None = None) -> Rows:
        if is_prepared(statement):
            self._inline += 1
            if not self._inline % _INLINE_AT_ONCE:
                await asyncio.sleep(0)
            return statements.run(self._raw, statement, parameters or {})
        return await self.run_sync(lambda connection: _detached(connection.execute(statement, parameters)))

    async def run_sync(self, call: Callable[[Connection], T]) -> T:
        return await self._database.in_write_thread(functools.partial(call, self._connection))

    async def commit(self) -> None:
        if self._connection.in_transaction():  # a thread took part: the transaction may be large
            await self._database.in_write_thread(self._connection.commit)
        else:
            with sqlalchemy_errors("COMMIT"):
                self._raw.commit()

    async def rollback(self) -> None:
        if self._database.closed:
            return  # it was rolled back by closing the connection
        if self._connection.get_transaction() is not None:  # also one that a failed commit left
            await self._database.in_write_thread(self._connection.rollback)
        if self._raw.in_transaction:
            self._raw.rollback()


def _detached(result: Any) -> Rows:
    if not result.returns_rows:
        return Rows((), [], result.rowcount)
    return Rows(tuple(result.keys()), [tuple(row) for row in result], result.rowcount)


def _pool(file: Path, busy_timeout_s: float) -> Engine:
    # Paddock begins transactions itself, hence no isolation level. "rw": a missing database is an error; SQLite would
    # otherwise create an empty one.
    uri = f"{file.as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)

    pool = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=_READERS + 2,
        max_overflow=0,
        json_deserializer=loads,
    )

    @event.listens_for(pool, "connect")
    def on_connect(connection: sqlite3.Connection, record: Any) -> None:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        record.info["inode"] = _inode(file)

    @event.listens_for(pool, "checkout")
    def on_checkout(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["inode"] != _inode(file):
            raise DisconnectionError(f"the database file {file.name} was replaced")

    return pool


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        raise DisconnectionError(f"the database file {file.name} was moved away") from None


def _try_begin(raw: sqlite3.Connection) -> bool:
    """Begin a write transaction. False if another connection holds the lock."""
    try:
        raw.execute(_BEGIN)
    except sqlite3.OperationalError as error:
        if _is_busy(error):
            return False
        raise
    return True


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_intact(file: Path) -> bool:
    """Whether SQLite's quick check passes. Blocking: reads the whole database."""
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=1)) as connection:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return bool(found == "ok")


def wal_bytes(file: Path) -> int:
    """The size of the write-ahead log beside the database."""
    try:
        return file.with_name(file.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


async def checkpoint(file: Path) -> None:
    """Copy the log into the database file. Waits for the disk, but blocks no other connection.

    The log restarts at its beginning only when a writer finds it copied completely, which never happens under
    continuous writes: see :func:`truncate`.
    """
    await asyncio.to_thread(_checkpoint, file, "PASSIVE", 0.0)


async def truncate(file: Path) -> bool:
    """Copy the rest and empty the log. The caller must block writers meanwhile; waits a moment for readers. False if a
    reader was still active, or another program writes."""
    return await asyncio.to_thread(_checkpoint, file, "TRUNCATE", _TRUNCATE_WAIT_S)


def _checkpoint(file: Path, kind: str, wait_s: float) -> bool:
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=wait_s)) as connection:
        (blocked, _, _) = connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
        return not blocked
