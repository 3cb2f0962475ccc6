"""Short transactions on SQLite, run where they are asked for: no thread, no greenlet, no statement compiled twice.

On the way of a request every layer counts: crossing into a thread, and all that makes a driver look asynchronous, cost
many times what the statement does. What a thread guards against cannot happen here: a lock that others hold is waited
for in a thread after all, before the transaction begins; nobody else can write once it has begun; readers wait for
nobody; and no commit waits for the disk, because checkpoints are left to a connection of their own
(``sqlite.checkpoint``).

Statements are SQLAlchemy's, so that repositories are written once for both databases. One that is built once and marked
by ``prepared`` is compiled once as well.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.dialects import sqlite as dialects
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from paddock.machine.threads import in_thread
from paddock.store import sqlite
from paddock.store.invalid_rows import loads

_AGAIN_SECONDS = 0.005
_DIALECT = dialects.dialect(paramstyle="qmark", json_deserializer=loads)
_PREPARED = "paddock_prepared"

Statement = TypeVar("Statement", bound=Any)
_Convert = Callable[[Any], Any] | None


def prepared(statement: Statement) -> Statement:
    """Mark a statement that lives as long as the process: what it compiles to is kept."""
    marked: Statement = statement.execution_options(**{_PREPARED: True})
    return marked


class InlineSqlite:
    """Two connections to one file: one that writes, one that reads meanwhile."""

    def __init__(self, file: Path, busy_seconds: float) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._writer: _Opened | None = None
        self._reader: _Opened | None = None

    def close(self) -> None:
        for opened in (self._writer, self._reader):
            if opened is not None:
                opened.raw.close()
        self._writer = self._reader = None

    @asynccontextmanager
    async def write(self) -> AsyncIterator[InlineConnection]:
        """For one at a time: the caller sees to it that no other transaction of this process writes meanwhile."""
        self._writer = opened = self._still(self._writer)
        raw = opened.raw
        with _as_sqlalchemy_says("BEGIN"):
            if not _begun(raw):
                await in_thread(self._begin_patiently, raw)
        try:
            yield InlineConnection(raw)
            with _as_sqlalchemy_says("COMMIT"):
                raw.commit()
        finally:
            if raw.in_transaction:
                raw.rollback()

    def read(self) -> InlineConnection:
        """Each statement sees a snapshot of its own."""
        self._reader = opened = self._still(self._reader)
        return InlineConnection(opened.raw)

    def _still(self, opened: _Opened | None) -> _Opened:
        """The same connection, if the file is still the same: SQLite goes on with one that was moved or replaced."""
        try:
            inode = self._file.stat().st_ino
        except FileNotFoundError:
            raise DisconnectionError(f"the database file {self._file.name} was moved away") from None
        if opened is not None and opened.inode == inode:
            return opened
        if opened is not None:
            opened.raw.close()
        with _as_sqlalchemy_says("open"):
            raw = sqlite.open_file(self._file, "rw")
            for pragma in sqlite.PRAGMAS:
                raw.execute(pragma)
        return _Opened(raw, inode)

    def _begin_patiently(self, raw: sqlite3.Connection) -> None:
        until = time.monotonic() + self._busy_seconds
        while time.monotonic() < until:
            time.sleep(_AGAIN_SECONDS)
            if _begun(raw):
                return
        raw.execute(_BEGIN)


class InlineConnection:
    """As much of SQLAlchemy's asynchronous connection as the repositories use."""

    dialect = _DIALECT

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.info: dict[str, Any] = {}
        self._raw = raw

    async def execute(self, statement: Any, parameters: Mapping[str, Any] | list[Any] | None = None) -> InlineResult:
        """With a list: once for each, answering nothing."""
        if isinstance(parameters, list):
            return self._each(statement, parameters)
        parameters = parameters or {}
        order = _order_for(statement, parameters)
        with _as_sqlalchemy_says(order.sql):
            cursor = self._raw.execute(order.sql, order.values(parameters))
            rows = [order.row(row) for row in cursor] if cursor.description else []
        return InlineResult(order.names, rows, cursor.rowcount)

    def _each(self, statement: Any, parameters: list[Any]) -> InlineResult:
        order = _order_for(statement, parameters[0])
        with _as_sqlalchemy_says(order.sql):
            cursor = self._raw.executemany(order.sql, [order.values(each) for each in parameters])
        return InlineResult((), [], cursor.rowcount)

    async def commit(self) -> None:
        with _as_sqlalchemy_says("COMMIT"):
            self._raw.commit()

    async def rollback(self) -> None:
        self._raw.rollback()


class InlineResult:
    """As much of SQLAlchemy's result as the repositories use."""

    def __init__(self, names: Sequence[str], rows: list[Any], rowcount: int) -> None:
        self._names = names
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def mappings(self) -> InlineResult:
        return InlineResult((), [dict(zip(self._names, row, strict=True)) for row in self._rows], self.rowcount)

    def scalars(self) -> Iterator[Any]:
        return (row[0] for row in self._rows)

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        (row,) = self._rows
        return row

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        return self.one()[0] if self._rows else None


@dataclass(frozen=True, slots=True)
class _Opened:
    raw: sqlite3.Connection
    inode: int


@dataclass(frozen=True, slots=True)
class _CompiledStatement:
    """A statement as SQLite takes it, and how values go in and come out."""

    sql: str
    places: Sequence[tuple[str, Any, _Convert]]
    """For each question mark: the parameter's name, its value where the statement has one, and how it is written."""
    names: Sequence[str]
    converts: Sequence[tuple[int, Callable[[Any], Any]]]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        given = (parameters.get(name, own) for name, own, _ in self.places)
        return [value if to is None else to(value) for value, (_, _, to) in zip(given, self.places, strict=True)]

    def row(self, row: Any) -> Any:
        if not self.converts:
            return row
        values = list(row)
        for index, convert in self.converts:
            values[index] = convert(values[index])
        return tuple(values)


_kept: dict[tuple[int, tuple[str, ...]], tuple[Any, _CompiledStatement]] = {}
"""By identity; the statement is kept too, so that no other one can ever have its."""


def _order_for(statement: Any, parameters: Mapping[str, Any]) -> _CompiledStatement:
    if not statement.get_execution_options().get(_PREPARED):
        return _compile(statement, parameters)
    key = (id(statement), tuple(parameters))
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = (statement, _compile(statement, parameters))
    return found[1]


def _compile(statement: ClauseElement, parameters: Mapping[str, Any]) -> _CompiledStatement:
    compiled = statement.compile(
        dialect=_DIALECT, column_keys=list(parameters) or None, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - for the type checker: only DDL compiles to something else
    names = compiled.positiontup or ()
    own = compiled.params
    columns = tuple(getattr(statement, "exported_columns", ()))
    converts = [(index, column.type.dialect_impl(_DIALECT)) for index, column in enumerate(columns)]
    return _CompiledStatement(
        sql=str(compiled),
        places=[(name, own.get(name), _writes(compiled, name)) for name in names],
        names=[column.name for column in columns],
        converts=[
            (index, convert)
            for index, kind in converts
            if (convert := kind.result_processor(_DIALECT, None)) is not None
        ],
    )


def _writes(compiled: SQLCompiler, name: str) -> _Convert:
    bind = compiled.binds.get(name)
    if bind is None:  # one of a list of values, which have the list's type
        return None
    convert: _Convert = bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
    return convert


_BEGIN = "BEGIN IMMEDIATE"


def _begun(raw: sqlite3.Connection) -> bool:
    """False: somebody else holds the lock."""
    try:
        raw.execute(_BEGIN)
    except sqlite3.OperationalError as error:
        if sqlite.is_busy(error):
            return False
        raise
    return True


@contextmanager
def _as_sqlalchemy_says(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise IntegrityError(doing, None, error) from error
    except sqlite3.Error as error:
        raise DBAPIError(doing, None, error) from error
