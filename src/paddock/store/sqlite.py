"""SQLite connections for SQLAlchemy: a thread each, entered once per statement, and closed once whatever happens.

The stock driver enters its thread four times for one SELECT (open, execute, fetch, close), and each crossing costs more
than the statement; and a task that is cancelled in the middle of a query can leave its connection waiting for ever.
This speaks the same interface to SQLAlchemy's aiosqlite dialect without either.

Short transactions on the way of a request do without a thread, and without this: see
:mod:`paddock.store.inline_sqlite`.
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
    # NORMAL loses nothing when the process dies. After a power cut the last moments may be missing, and the reconciler
    # finds those again at the providers.
    "PRAGMA synchronous=NORMAL",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA secure_delete=ON",  # what a deleted sandbox's rows held is overwritten, not left in free pages
    "PRAGMA wal_autocheckpoint=0",  # see Store._committed
)
"""What every connection is told first."""
MAX_WAL_BYTES = 128 << 20
"""A write-ahead log beyond this is not kept small any more: it is several times what writers are made to wait at."""
_AGAIN_SECONDS = 0.005
_TRUNCATE_WAIT_S = 0.25
"""How long readers are waited for while writers wait for us. Each reads within milliseconds."""
_Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


def connector(file: Path, mode: str, busy_seconds: float) -> Callable[[], Awaitable[Any]]:
    """What SQLAlchemy calls for a new connection. ``mode`` is SQLite's: rw, or rwc to create the file."""
    return lambda: _Connection(lambda: open_file(file, mode), busy_seconds)


def open_file(file: Path, mode: str) -> sqlite3.Connection:
    # Transactions are ours to begin, hence no isolation level; and to wait for, hence no timeout. Two threads use
    # it, but never at the same time.
    return sqlite3.connect(
        f"{file.as_uri()}?mode={mode}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


class _Connection:
    """Jobs are done in the order in which they come, so what follows a cancelled statement runs after it."""

    def __init__(self, open_file: Callable[[], sqlite3.Connection], busy_seconds: float) -> None:
        self._open_file = open_file
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None  # SQLAlchemy looks whether it is there
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
        """Close after what is under way. The same future every time: it is closed once."""
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
        """Do this in the connection's thread."""
        if self._closed is not None:
            raise sqlite3.OperationalError("the connection is closed")
        done = asyncio.get_running_loop().create_future()
        self._jobs.put((done, lambda: self._patiently(call)))
        return await done

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Wait for a lock that others hold, for as long as is bearable."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > until:
                    raise
            time.sleep(_AGAIN_SECONDS)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            done, call = job
            answer: Any = None
            error: BaseException | None = None
            try:
                answer = call()
            except BaseException as problem:  # noqa: BLE001 - whatever it is, it belongs to the one who asked
                error = problem
            with contextlib.suppress(RuntimeError):  # the loop has gone, and so has everybody who waited
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
        """Closed already, in the connection's thread."""

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
    """Reads the whole database; blocking, for as long as it is large."""
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
    """Move what was written into the database itself. Waits for the disk, but keeps nobody else waiting for it.

    The log starts again at its beginning only when a writer finds it moved over completely, which never happens while
    others go on writing: see :func:`truncate`.
    """
    await asyncio.to_thread(_checkpoint, file, "PASSIVE", 0.0)


async def truncate(file: Path) -> bool:
    """Move the rest and empty the log. For one who keeps writers away meanwhile; readers are waited for a moment.
    False: somebody was still reading, or another program writes."""
    return await asyncio.to_thread(_checkpoint, file, "TRUNCATE", _TRUNCATE_WAIT_S)


def _checkpoint(file: Path, kind: str, wait_s: float) -> bool:
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=wait_s)) as connection:
        (blocked, _, _) = connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
        return not blocked
