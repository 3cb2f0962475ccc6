"""SQLite connections for SQLAlchemy: one thread per connection, one thread switch per statement, closed exactly once.

The aiosqlite driver switches threads four times for one SELECT (open, execute, fetch, close), and each switch costs
more than the statement; and a task cancelled during a query can leave its connection waiting for ever. This module
offers the same interface to SQLAlchemy's aiosqlite dialect without either problem.

Short transactions during a request do not use it: see :mod:`paddock.store.inline_sqlite`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # NORMAL loses nothing when the process dies. After a power failure the last transactions may be missing; the
    # reconciler recovers those sandboxes from the providers.
    "PRAGMA synchronous=NORMAL",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA secure_delete=ON",  # overwrite the rows of deleted sandboxes instead of leaving them in free pages
    "PRAGMA wal_autocheckpoint=0",  # checkpoints are run by store.write_ahead_log
)
"""Run on every new connection."""
MAX_WAL_BYTES = 128 << 20
"""A write-ahead log beyond this size is out of control: it is several times the size at which writers are slowed
down."""
_BUSY_RETRY_S = 0.005
_TRUNCATE_WAIT_S = 0.25
"""How long to wait for readers while writers are blocked. A read takes milliseconds."""
_Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


def connector(file: Path, mode: str, busy_seconds: float) -> Callable[[], Awaitable[Any]]:
    """The connection factory for SQLAlchemy. ``mode`` is SQLite's: rw, or rwc to create the file."""
    return lambda: _Connection(lambda: open_file(file, mode), busy_seconds)


def open_file(file: Path, mode: str) -> sqlite3.Connection:
    # Paddock begins transactions itself, hence no isolation level, and retries busy locks itself, hence no timeout. Two
    # threads use the connection, but never at the same time.
    return sqlite3.connect(
        f"{file.as_uri()}?mode={mode}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


class _Connection:
    """Jobs run in order of arrival, so what follows a cancelled statement runs after it."""

    def __init__(self, open_file: Callable[[], sqlite3.Connection], busy_seconds: float) -> None:
        self._open_file = open_file
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None  # SQLAlchemy checks this attribute
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed: asyncio.Future[Any] | None = None

    def __await__(self) -> Generator[Any, None, _Connection]:
        return self._open().__await__()

    async def _open(self) -> _Connection:
        Thread(target=self._work, name="sqlite", daemon=True).start()
        try:
            await self.cross(self._connect)
        except BaseException:
            self.stop()
            raise
        return self

    def cursor(self) -> _Cursor:
        return _Cursor(self)

    async def commit(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            await self.cross(self._connection.commit)

    async def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            await self.cross(self._connection.rollback)

    async def create_function(self, *words: Any, **named: Any) -> None:
        await self.cross(lambda: self.raw.create_function(*words, **named))

    async def close(self) -> None:
        await asyncio.shield(self.stop())

    def stop(self) -> asyncio.Future[Any]:
        """Close after pending jobs. Returns the same future every time, since it is closed once."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._jobs.put((self._closed, self._disconnect))
            self._jobs.put(None)
        return self._closed

    @property
    def raw(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.OperationalError("the connection is closed")
        return self._connection

    async def cross(self, call: Callable[[], Any]) -> Any:
        """Run ``call`` in the connection's thread."""
        if self._closed is not None:
            raise sqlite3.OperationalError("the connection is closed")
        done = asyncio.get_running_loop().create_future()
        self._jobs.put((done, lambda: self._with_retries(call)))
        return await done

    def _with_retries(self, call: Callable[[], Any]) -> Any:
        """Retry while other connections hold the lock, up to the busy timeout."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > until:
                    raise
            time.sleep(_BUSY_RETRY_S)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            done, call = job
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = call()
            except BaseException as problem:  # noqa: BLE001 - any error belongs to the awaiting caller
                error = problem
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and its waiters with it
                done.get_loop().call_soon_threadsafe(self._settle, done, answer, error)

    def _settle(self, done: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(answer)
        else:
            done.set_exception(error)

    def _connect(self) -> None:
        self._connection = self._open_file()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Cursor:
    arraysize = 1

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> _Cursor:
        return self

    async def execute(self, statement: str, parameters: Iterable[Any] = ()) -> _Cursor:
        await self._connection.cross(lambda: self._run(sqlite3.Cursor.execute, statement, parameters))
        return self

    async def executemany(self, statement: str, parameters: Iterable[Iterable[Any]]) -> _Cursor:
        await self._connection.cross(lambda: self._run(sqlite3.Cursor.executemany, statement, parameters))
        return self

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Does nothing: the cursor was closed in the connection's thread."""

    def _run(self, call: Callable[..., Any], statement: str, parameters: Any) -> None:
        cursor = self._connection.raw.cursor()
        try:
            call(cursor, statement, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if cursor.description else []
            self.rowcount = cursor.rowcount
            self.lastrowid = cursor.lastrowid
        finally:
            cursor.close()


def is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


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
