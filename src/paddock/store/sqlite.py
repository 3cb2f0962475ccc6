"""SQLite connections for SQLAlchemy that cross to their thread once per statement.

Each aiosqlite connection has a thread of its own. The stock cursor goes there four times for one SELECT (open, execute,
fetch, close), and each crossing costs more than the statement. This one does all of it in one crossing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import aiosqlite


def connector(file: Path, mode: str, busy_seconds: float) -> Callable[[], Any]:
    """What SQLAlchemy calls for a new connection. ``mode`` is SQLite's: rw, or rwc to create the file."""

    def open_file() -> sqlite3.Connection:
        # Transactions are ours to begin, hence no isolation level.
        return sqlite3.connect(f"{file.as_uri()}?mode={mode}", uri=True, timeout=busy_seconds, isolation_level=None)

    def connect() -> _Connection:
        connection = _Connection(open_file, iter_chunk_size=64)
        connection._thread.daemon = True
        return connection

    return connect


class _Connection(aiosqlite.Connection):
    def cursor(self) -> Any:  # the stock one is awaited; SQLAlchemy only enters it
        return _Cursor(self)

    async def commit(self) -> None:
        if self.in_transaction:
            await super().commit()

    async def rollback(self) -> None:
        if self.in_transaction:
            await super().rollback()


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
        await self._cross(sqlite3.Cursor.execute, statement, parameters)
        return self

    async def executemany(self, statement: str, parameters: Iterable[Iterable[Any]]) -> _Cursor:
        await self._cross(sqlite3.Cursor.executemany, statement, parameters)
        return self

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Closed already, in the connection's thread."""

    async def _cross(self, call: Callable[..., Any], statement: str, parameters: Any) -> None:
        await self._connection._execute(self._run, call, statement, parameters)  # type: ignore[no-untyped-call]

    def _run(self, call: Callable[..., Any], statement: str, parameters: Any) -> None:
        cursor = self._connection._conn.cursor()
        try:
            call(cursor, statement, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if cursor.description else []
            self.rowcount = cursor.rowcount
            self.lastrowid = cursor.lastrowid
        finally:
            cursor.close()
