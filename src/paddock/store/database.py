"""The database: transactions, and errors when it is locked, full or unavailable.

A transaction is either read or write. On SQLite the writes of a process are serialized, and each begins IMMEDIATE, so a
writer waits instead of failing in the middle; where a statement runs, on the event loop or in a thread, the statement
tells (:mod:`paddock.store.sqlite`). Every driver error for an unusable database becomes
:class:`~paddock.errors.StoreUnavailable`; the next transaction opens afresh, so recovery needs no restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import structlog
from sqlalchemy import inspect, text
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from paddock.disk_space import ReserveFile
from paddock.errors import StoreFull, StoreUnavailable
from paddock.store import migrations, postgres, sqlite
from paddock.store.sqlite import SqliteDatabase
from paddock.store.write_ahead_log import WriteAheadLog

log = structlog.get_logger(__name__)

T = TypeVar("T")

CHANGED = "paddock.changed"
"""Key under which a write transaction collects the ids of the sandboxes whose rows it changes."""
_WIPED = "paddock.wiped"
"""Key under which it collects the tables from which it removes secrets."""
_MIGRATION_LOCK = 0x70616464  # any constant unique to Paddock
_BUSY_TIMEOUT_S = 5.0
_POSTGRES_DISK_FULL = "53100"
_POOL_TIMEOUT_S = 10.0
INTENT_PATIENCE_S, OUTCOME_PATIENCE_S = 3.0, 15.0
"""How long a change that frees room is retried on a full disk: before anything was done, when refusing is the better
answer; and after it was done, when only the database does not know it yet."""
_FREEING_RETRY_S = 0.1
_RESERVE_SUFFIX = ".reserve"
"""Suffix of the file beside a SQLite database that reserves disk space for when the disk is full."""


class StoreDamaged(StoreUnavailable):
    """SQLite reports that the file is damaged."""


def wipes(connection: AsyncConnection, table: str) -> None:
    """Mark that this transaction removes secrets from the table, so that no copy may stay in the write-ahead log."""
    connection.info.setdefault(_WIPED, set()).add(table)


class Store:
    """A handle on the database. Cheap to create; nothing is opened before ``open``."""

    def __init__(self, url: str) -> None:
        self.url = _normalized(url)
        self._engine: AsyncEngine | None = None
        self._sqlite: SqliteDatabase | None = None
        self._turn = asyncio.Lock()
        self._writes = postgres.SharedLock()
        self._log = WriteAheadLog(self.file, self._write_lock) if self.file else None
        self._inode = 0
        self._listeners: list[Callable[[Collection[str]], None]] = []
        self._reserve = ReserveFile(self.file.with_name(self.file.name + _RESERVE_SUFFIX)) if self.file else None
        self._damaged = False

    def tell_changes(self, listener: Callable[[Collection[str]], None]) -> None:
        """Register a callback for the end of every write transaction, with the ids of the sandboxes whose rows it may
        have changed."""
        self._listeners.append(listener)

    @property
    def in_place(self) -> bool:
        """Whether the SQLite file is still the one that was opened: neither moved nor replaced."""
        try:
            return self.file is not None and self.file.stat().st_ino == self._inode
        except OSError:
            return False

    @property
    def sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        return Path(self.url.database) if self.sqlite and self.url.database else None

    @property
    def log_bytes(self) -> int | None:
        """The size of SQLite's write-ahead log."""
        return self._log.size if self._log else None

    async def open(self) -> None:
        """Open the connections and migrate the schema to the current version."""
        with self._translated_errors():
            if self.file:
                self._make_private(self.file)
                self._sqlite = SqliteDatabase(self.file, _BUSY_TIMEOUT_S)
            else:
                self._engine = postgres.engine(self.url, _POOL_TIMEOUT_S)
            if self._reserve is not None:
                await asyncio.to_thread(self._reserve.hold)
        try:
            async with self._transaction(writes=True) as connection:
                if not self.sqlite:
                    await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
                await connection.run_sync(_migrate)
        except BaseException:
            await self._disconnect()
            raise
        self._inode = self.file.stat().st_ino if self.file else 0
        if self._log is not None:
            self._log.open()

    async def close(self) -> None:
        if self._log is not None:
            await self._log.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._engine is not None:
            await self._engine.dispose()
        if self._sqlite is not None:
            await self._sqlite.close()
        self._engine = self._sqlite = None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A read transaction; on SQLite each statement has its own."""
        async with self._transaction(writes=False) as connection:
            yield connection

    @asynccontextmanager
    async def write(self, *, alone: bool = False) -> AsyncIterator[AsyncConnection]:
        """A write transaction: committed when the block ends, rolled back when it raises. ``alone``: no other write
        transaction of this process is open meanwhile, on PostgreSQL too."""
        changed: set[str] = set()
        wiped: set[str] = set()
        if self._log is not None:
            await self._log.let_catch_up()
        try:
            async with self._write_lock(alone), self._transaction(writes=True) as connection:
                connection.info[CHANGED], connection.info[_WIPED] = changed, wiped
                before = getattr(connection, "total_changes", 0)
                yield connection
                await connection.commit()
                after = getattr(connection, "total_changes", 0)
            if self._log is not None:
                self._log.committed(changed_rows=after != before)
        finally:
            if wiped and self._log is not None:  # also if cancelled after the commit
                self._log.wipe()
            for listener in self._listeners:
                listener(changed)

    async def check_writable(self) -> None:
        """Raises if the database is read-only: such a file can be opened and read, only a write shows it."""
        if self.sqlite:
            async with self.write() as connection:
                await connection.execute(text("PRAGMA user_version = 0"))  # unused by Paddock, and already 0

    async def keep_reserve(self) -> None:
        """Allocate the reserve file again if there is room now. Call periodically."""
        if self._reserve is not None and not self._reserve.held:
            await asyncio.to_thread(self._reserve.hold)

    async def intact(self) -> bool:
        """False if SQLite reported damage and a check of the whole file confirms it."""
        if self._damaged and self.file is not None:
            try:
                self._damaged = not await asyncio.to_thread(sqlite.is_intact, self.file)
            except sqlite3.Error as error:
                log.warning("the database cannot be checked", problem=str(error)[:300])
        return not self._damaged

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            with _translate_driver_errors():
                yield
        except StoreDamaged:
            self._damaged = True
            raise

    async def write_freeing(self, work: Callable[[], Awaitable[T]], patience_s: float = INTENT_PATIENCE_S) -> T:
        """Run a transaction that frees disk space, or ends what uses it. On a full disk the reserve is released and the
        transaction retried for a moment. ``work`` is one transaction."""
        try:
            return await work()
        except StoreFull:
            if self._reserve is not None and await asyncio.to_thread(self._reserve.release):
                log.error("the disk under the database is full: what was held back is used now; make room")
        until = time.monotonic() + patience_s
        while True:
            try:
                return await work()
            except StoreFull:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_FREEING_RETRY_S)

    @asynccontextmanager
    async def _write_lock(self, alone: bool = False) -> AsyncIterator[None]:
        """PostgreSQL allows concurrent writers; SQLite allows one, and writers of this process queue here."""
        lock = self._turn if self.sqlite else self._writes.alone if alone else self._writes.shared
        try:
            async with asyncio.timeout(_POOL_TIMEOUT_S):
                await lock.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                "The database is busy with other changes for too long. Nothing was changed; try again.", retry_after=1
            ) from None
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def _transaction(self, *, writes: bool) -> AsyncIterator[AsyncConnection]:
        with self._translated_errors():
            if self._sqlite is not None and writes:
                async with self._sqlite.write() as writer:
                    yield cast(AsyncConnection, writer)  # only the methods that the repositories use
            elif self._sqlite is not None:
                yield cast(AsyncConnection, self._sqlite.read())
            elif self._engine is not None:
                async with self._engine.connect() as connection:
                    # If the block is cancelled during a statement, SQLAlchemy discards the connection.
                    yield connection
                    await connection.commit()
            else:
                raise StoreUnavailable("The database is not open.")

    @staticmethod
    def _make_private(file: Path) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def _migrate(connection: Connection) -> None:
    if _revision(connection) == migrations.newest():
        return
    from alembic import command  # slow to import, and needed only after an upgrade
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "paddock:store/migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    """The schema's revision; None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


_DRIVERS = {
    "sqlite": "sqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}


def _normalized(url: str) -> URL:
    try:
        parsed = make_url(url)
    except SQLAlchemyError:
        raise ValueError(
            "DATABASE_URL is not a URL. Examples: sqlite:////var/lib/paddock/paddock.db, "
            "postgresql://user:password@host:5432/paddock"
        ) from None
    driver = _DRIVERS.get(parsed.drivername.split("+")[0])
    if driver is None:
        raise ValueError(f"DATABASE_URL names {parsed.drivername!r}; Paddock keeps its state in sqlite or postgresql")
    if driver.startswith("sqlite") and (not parsed.database or parsed.database == ":memory:"):
        raise ValueError("DATABASE_URL must name a file: a database in memory would forget every sandbox")
    if driver.startswith("sqlite"):
        # Relative to the current directory, as in SQLAlchemy; SQLite's own URIs need absolute paths.
        parsed = parsed.set(database=str(Path(parsed.database or "").expanduser().absolute()))
    return parsed.set(drivername=driver)


@contextlib.contextmanager
def _translate_driver_errors() -> Iterator[None]:
    """Translate driver errors, except those that callers handle, such as IntegrityError."""
    try:
        yield
    except (IntegrityError, StoreUnavailable):
        raise
    except (DBAPIError, PoolTimeout, DisconnectionError) as error:
        cause = getattr(error, "orig", None) or error
        log.warning("database unavailable", problem=str(cause)[:300])
        raise _kind(cause)(
            f"The database cannot be used right now ({str(cause)[:200]}). Nothing was changed; try again.",
            retry_after=1,
        ) from error
    except (OSError, TimeoutError) as error:
        # asyncpg passes on socket errors when it cannot connect.
        if not _from_driver(error):
            raise
        log.warning("database unreachable", problem=str(error)[:300])
        raise StoreUnavailable(
            "The database cannot be reached right now. Nothing was changed; try again.", retry_after=1
        ) from error


def _kind(cause: BaseException) -> type[StoreUnavailable]:
    code = getattr(cause, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == _POSTGRES_DISK_FULL:
        return StoreFull
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged
    return StoreUnavailable


def _from_driver(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(("asyncpg", "sqlalchemy")):
            return True
        trace = trace.tb_next
    return False
