"""Short transactions on SQLite, run on the event loop: no thread, no greenlet, no repeated compilation.

During a request every layer counts: a thread switch, and what makes a driver asynchronous, cost many times the
statement itself. Blocking is short: a lock held by another process is awaited in a thread before the transaction
begins; once it has begun there is no other writer; readers do not wait; and no commit waits for the disk, because
checkpoints are run on a separate connection (``sqlite.checkpoint``).

Statements are SQLAlchemy's, so that repositories are written once for both databases. A statement marked by
``prepared`` is compiled once.
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

_BUSY_RETRY_S = 0.005
_DIALECT = dialects.dialect(paramstyle="qmark", json_deserializer=loads)
_PREPARED = "paddock_prepared"

Statement = TypeVar("Statement", bound=Any)
_Convert = Callable[[Any], Any] | None


def prepared(statement: Statement) -> Statement:
    """Mark a statement that lives as long as the process, so that its compiled form is cached."""
    marked: Statement = statement.execution_options(**{_PREPARED: True})
    return marked


class InlineSqlite:
    """Two connections to one file: one writes, the other reads meanwhile."""

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
        """A write transaction. The caller ensures that no other transaction of this process writes meanwhile."""
        self._writer = opened = self._current(self._writer)
        raw = opened.raw
        with _sqlalchemy_errors("BEGIN"):
            if not _try_begin(raw):
                await in_thread(self._begin_with_retries, raw)
        try:
            yield InlineConnection(raw)
            with _sqlalchemy_errors("COMMIT"):
                raw.commit()
        finally:
            if raw.in_transaction:
                raw.rollback()

    def read(self) -> InlineConnection:
        """Each statement sees its own snapshot."""
        self._reader = opened = self._current(self._reader)
        return InlineConnection(opened.raw)

    def _current(self, opened: _Opened | None) -> _Opened:
        """The open connection if the file is still the same, else a new one: SQLite would keep using a file that was
        moved or replaced."""
        try:
            inode = self._file.stat().st_ino
        except FileNotFoundError:
            raise DisconnectionError(f"the database file {self._file.name} was moved away") from None
        if opened is not None and opened.inode == inode:
            return opened
        if opened is not None:
            opened.raw.close()
        with _sqlalchemy_errors("open"):
            raw = sqlite.open_file(self._file, "rw")
            for pragma in sqlite.PRAGMAS:
                raw.execute(pragma)
        return _Opened(raw, inode)

    def _begin_with_retries(self, raw: sqlite3.Connection) -> None:
        until = time.monotonic() + self._busy_seconds
        while time.monotonic() < until:
            time.sleep(_BUSY_RETRY_S)
            if _try_begin(raw):
                return
        raw.execute(_BEGIN)


class InlineConnection:
    """The part of SQLAlchemy's AsyncConnection that the repositories use."""

    dialect = _DIALECT

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.info: dict[str, Any] = {}
        self._raw = raw

    async def execute(self, statement: Any, parameters: Mapping[str, Any] | list[Any] | None = None) -> InlineResult:
        """With a list of parameters: executed once for each, returning no rows."""
        if isinstance(parameters, list):
            return self._each(statement, parameters)
        parameters = parameters or {}
        order = _compiled(statement, parameters)
        with _sqlalchemy_errors(order.sql):
            cursor = self._raw.execute(order.sql, order.values(parameters))
            rows = [order.row(row) for row in cursor] if cursor.description else []
        return InlineResult(order.names, rows, cursor.rowcount)

    def _each(self, statement: Any, parameters: list[Any]) -> InlineResult:
        order = _compiled(statement, parameters[0])
        with _sqlalchemy_errors(order.sql):
            cursor = self._raw.executemany(order.sql, [order.values(each) for each in parameters])
        return InlineResult((), [], cursor.rowcount)

    async def commit(self) -> None:
        with _sqlalchemy_errors("COMMIT"):
            self._raw.commit()

    async def rollback(self) -> None:
        self._raw.rollback()


class InlineResult:
    """The part of SQLAlchemy's Result that the repositories use."""

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
    """A statement as SQL text, with conversions of its parameters and results."""

    sql: str
    places: Sequence[tuple[str, Any, _Convert]]
    """For each placeholder: the parameter's name, its value in the statement if any, and its conversion."""
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


_compiled_statements: dict[tuple[int, tuple[str, ...]], tuple[Any, _CompiledStatement]] = {}
"""Compiled statements by identity. The statement is kept alive too, so that its id is not reused."""


def _compiled(statement: Any, parameters: Mapping[str, Any]) -> _CompiledStatement:
    if not statement.get_execution_options().get(_PREPARED):
        return _compile(statement, parameters)
    key = (id(statement), tuple(parameters))
    found = _compiled_statements.get(key)
    if found is None:
        found = _compiled_statements[key] = (statement, _compile(statement, parameters))
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
        places=[(name, own.get(name), _bind_processor(compiled, name)) for name in names],
        names=[column.name for column in columns],
        converts=[
            (index, convert)
            for index, kind in converts
            if (convert := kind.result_processor(_DIALECT, None)) is not None
        ],
    )


def _bind_processor(compiled: SQLCompiler, name: str) -> _Convert:
    bind = compiled.binds.get(name)
    if bind is None:  # an element of a list of values, which has the list's type
        return None
    convert: _Convert = bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
    return convert


_BEGIN = "BEGIN IMMEDIATE"


def _try_begin(raw: sqlite3.Connection) -> bool:
    """Begin a write transaction. False if another connection holds the lock."""
    try:
        raw.execute(_BEGIN)
    except sqlite3.OperationalError as error:
        if sqlite.is_busy(error):
            return False
        raise
    return True


@contextmanager
def _sqlalchemy_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise IntegrityError(doing, None, error) from error
    except sqlite3.Error as error:
        raise DBAPIError(doing, None, error) from error
