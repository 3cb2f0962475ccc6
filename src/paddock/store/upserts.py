"""``INSERT … ON CONFLICT``, which SQLAlchemy has separately in each dialect.

PostgreSQL's dialect is imported only by servers that use it: its import takes longer than all of SQLite's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.inline_sqlite import prepared


def insert_for(connection: AsyncConnection, table: Table) -> Any:
    """An insert with ``on_conflict_do_update`` and ``on_conflict_do_nothing``."""
    return _insert(connection.dialect.name, table)


class Upsert:
    """A statement that lives as long as the process: built and compiled once per dialect."""

    def __init__(self, table: Table, complete: Callable[[Any], Any]) -> None:
        """``complete`` adds the conflict clause to the insert."""
        self._table = table
        self._complete = complete
        self._built: dict[str, Any] = {}

    def on(self, connection: AsyncConnection) -> Any:
        name = connection.dialect.name
        if name not in self._built:
            self._built[name] = prepared(self._complete(_insert(name, self._table)))
        return self._built[name]


def _insert(dialect: str, table: Table) -> Any:
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)
