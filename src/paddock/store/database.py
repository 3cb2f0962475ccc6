"""The database: connections, transactions, and errors when it is locked, full or unavailable.

A transaction is either read or write. On SQLite the writes of a process are serialized, and each begins IMMEDIATE, so a
writer waits instead of failing in the middle. Every driver error for an unusable database becomes
:class:`~paddock.errors.StoreUnavailable`; the next transaction opens afresh, so recovery needs no restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog
from sqlalchemy import event, inspect, text
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import (
    DisconnectionError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from paddock.disk_space import ReserveFile
from paddock.errors import StoreFull, StoreUnavailable
from paddock.store import migrations, sqlite
from paddock.store.driver_errors import StoreDamaged, translate_driver_errors
from paddock.store.inline_sqlite import InlineConnection, InlineSqlite
from paddock.store.invalid_rows import loads
from paddock.store.shared_lock import SharedLock
from paddock.store.write_ahead_log import WriteAheadLog

log = structlog.get_logger(__name__)

T = TypeVar("T")

CHANGED = "paddock.changed"
"""Key under which a write transaction collects the ids of the sandboxes whose rows it changes."""
_WIPED = "paddock.wiped"
"""Key under which it collects the tables from which it removes secrets."""
_MIGRATION_LOCK = 0x70616464  # any constant unique to Paddock
_BUSY_SECONDS = 5.0
_POOL_TIMEOUT_S = 10.0
INTENT_PATIENCE_S, OUTCOME_PATIENCE_S = 3.0, 15.0
"""How long a change that frees room is retried on a full disk: before anything was done, when refusing is the better
answer; and after it was done, when only the database does not know it yet."""
_FREEING_RETRY_S = 0.1
_RESERVE_SUFFIX = ".reserve"
"""Suffix of the file beside a SQLite database that reserves disk space for when the disk is full."""


def wipes(connection: AsyncConnection, table: str) -> None:
    """Mark that this transaction removes secrets from the table, so that no copy may stay in the write-ahead log."""
    connection.info.setdefault(_WIPED, set()).add(table)


class Store:
    """A handle on the database. Cheap to create; nothing is opened before ``open``."""

    def __init__(self, url: str) -> None:
        self.url = _normalized(url)
        self._reader: AsyncEngine | None = None
        self._writer: AsyncEngine | None = None
        self._inline: InlineSqlite | None = None
        self._turn = asyncio.Lock()
        self._writes = SharedLock()
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
        """Migrate the schema to the current version and open the connections."""
        with self._translated_errors():
            if self.file:
                self._make_private(self.file)
            if self._reserve is not None:
                await asyncio.to_thread(self._reserve.hold)
            migrator = self._engine(create=True, writes=True, pool_size=1)
            try:
                async with migrator.begin() as connection:
                    if not self.sqlite:
                        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
                    await connection.run_sync(_migrate)
            finally:
                await migrator.dispose()
        self._inode = self.file.stat().st_ino if self.file else 0
        self._reader = self._engine(create=False, writes=False, pool_size=8)
        self._writer = self._engine(create=False, writes=True, pool_size=1) if self.sqlite else self._reader
        self._inline = InlineSqlite(self.file, _BUSY_SECONDS) if self.file else None
        if self._log is not None:
            self._log.open()

    async def close(self) -> None:
        if self._log is not None:
            await self._log.close()
        for engine in {self._reader, self._writer}:
            if engine is not None:
                await engine.dispose()
        if self._inline is not None:
            self._inline.close()
        self._reader = self._writer = self._inline = None

    @asynccontextmanager
    async def read(self, *, inline: bool = False) -> AsyncIterator[AsyncConnection]:
        """A read transaction. ``inline``: for a row or two by key, during a request; SQLite runs it without a
        thread."""
        if inline and self._inline is not None:
            with self._translated_errors():
                yield cast(AsyncConnection, self._inline.read())  # only the methods that the repositories use
            return
        async with self._transaction(self._reader) as connection:
            yield connection

    @asynccontextmanager
    async def write(self, *, inline: bool = False, alone: bool = False) -> AsyncIterator[AsyncConnection]:
        """A write transaction: committed when the block ends, rolled back when it raises. ``alone``: no other write
        transaction of this process is open meanwhile, on PostgreSQL too.

        ``inline``: for a few statements on a few rows, during a request; SQLite runs them without a thread.
        """
        changed: set[str] = set()
        wiped: set[str] = set()
        if self._log is not None:
            await self._log.let_catch_up()
        try:
            async with self._write_lock(alone), self._writing(inline) as connection:
                connection.info[CHANGED], connection.info[_WIPED] = changed, wiped
                before = await self._row_changes(connection)
                yield connection
                await connection.commit()
                after = await self._row_changes(connection)
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
            with translate_driver_errors():
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
    async def _writing(self, inline: bool) -> AsyncIterator[AsyncConnection]:
        if not inline or self._inline is None:
            async with self._transaction(self._writer) as usual:
                yield usual
            return
        with self._translated_errors():
            async with self._inline.write() as connection:
                yield cast(AsyncConnection, connection)

    async def _row_changes(self, connection: AsyncConnection | InlineConnection) -> int:
        """How many rows this connection to SQLite has changed since it was opened."""
        if isinstance(connection, InlineConnection):
            return connection.total_changes
        if self._log is None:
            return 0
        driver = (await connection.get_raw_connection()).driver_connection
        return driver.raw.total_changes if driver is not None else 0

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine | None) -> AsyncIterator[AsyncConnection]:
        if engine is None:
            raise StoreUnavailable("The database is not open.")
        with self._translated_errors():
            async with engine.connect() as connection:
                # If the block is cancelled during a statement, SQLAlchemy discards the connection.
                yield connection
                await connection.commit()

    def _engine(self, *, create: bool, writes: bool, pool_size: int) -> AsyncEngine:
        if not self.sqlite:
            return create_async_engine(
                self.url.difference_update_query(_TLS_PARAMETERS),
                connect_args={"timeout": 10, "command_timeout": 30, **_tls(self.url)},
                pool_size=pool_size,
                max_overflow=16,
                pool_timeout=_POOL_TIMEOUT_S,
                pool_pre_ping=True,
                json_deserializer=loads,
            )
        file = self.file or Path()
        # "rw": a missing database is an error. SQLite would otherwise create an empty one.
        engine = create_async_engine(
            "sqlite+aiosqlite://",
            async_creator=sqlite.connector(file, "rwc" if create else "rw", _BUSY_SECONDS),
            poolclass=AsyncAdaptedQueuePool,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=_POOL_TIMEOUT_S,
            json_deserializer=loads,
        )
        _prepare_sqlite(engine.sync_engine, file, writes)
        return engine

    @staticmethod
    def _make_private(file: Path) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def _prepare_sqlite(engine: Engine, file: Path, writes: bool) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for pragma in sqlite.PRAGMAS:
            cursor.execute(pragma)
        cursor.close()
        record.info["inode"] = file.stat().st_ino

    @event.listens_for(engine, "checkout")
    def on_checkout(_connection: Any, record: Any, _proxy: Any) -> None:
        # SQLite keeps writing to a file that was deleted or replaced.
        try:
            same = file.stat().st_ino == record.info["inode"]
        except FileNotFoundError:
            same = False
        if not same:
            raise DisconnectionError(f"the database file {file.name} was moved away")

    if not writes:
        return  # each SELECT is a snapshot, which is enough for readers

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


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
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_TLS_PARAMETERS = ["sslmode", "sslrootcert", "channel_binding", "ssl"]


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


def _tls(url: URL) -> dict[str, Any]:
    """libpq's ``sslmode``, except that the certificate is verified whenever TLS is required."""
    mode = url.query.get("sslmode") or url.query.get("ssl")
    if mode in {None, "disable", "allow", "prefer"}:
        return {"ssl": mode} if mode else {}
    root = url.query.get("sslrootcert")
    context = ssl.create_default_context(cafile=str(root) if root else None)
    context.check_hostname = mode != "verify-ca"
    return {"ssl": context}
