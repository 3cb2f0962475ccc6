"""Statements that run on the event loop: marked by ``prepared``, compiled once, handed straight to SQLite.

Building and compiling a statement costs many times what SQLite does for it. Statements are SQLAlchemy's, so that
repositories are written once for both databases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.dialects import sqlite as dialects
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from paddock.store.invalid_rows import loads

DIALECT = dialects.dialect(paramstyle="qmark", json_deserializer=loads)
_PREPARED = "paddock_prepared"

Statement = TypeVar("Statement", bound=Any)
_Convert = Callable[[Any], Any] | None


def prepared(statement: Statement) -> Statement:
    """Mark a statement that lives as long as the process and touches a few rows by key. On SQLite it runs on the event
    loop; every other statement runs in a thread."""
    marked: Statement = statement.execution_options(**{_PREPARED: True})
    return marked


def is_prepared(statement: Any) -> bool:
    return bool(statement.get_execution_options().get(_PREPARED))


class Upsert:
    """``INSERT … ON CONFLICT``, which SQLAlchemy has separately in each dialect; prepared once per dialect.

    PostgreSQL's dialect is imported only by servers that use it: its import takes longer than all of SQLite's.
    """

    def __init__(self, table: Table, complete: Callable[[Any], Any]) -> None:
        """``complete`` adds the conflict clause to the insert."""
        self._table = table
        self._complete = complete
        self._built: dict[str, Any] = {}

    def on(self, connection: AsyncConnection) -> Any:
        name = connection.dialect.name
        if name not in self._built:
            if name == "sqlite":
                from sqlalchemy.dialects.sqlite import insert
            else:
                from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
            self._built[name] = prepared(self._complete(insert(self._table)))
        return self._built[name]


def replacing(table: Table, *keys: str) -> Upsert:
    """Insert a row, or replace every other column of the one with the same keys."""

    def complete(insert: Any) -> Any:
        changed = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keys}
        return insert.on_conflict_do_update(index_elements=keys, set_=changed)

    return Upsert(table, complete)


def keeping(table: Table, *keys: str) -> Upsert:
    """Insert a row, unless there is one with the same keys."""
    return Upsert(table, lambda insert: insert.on_conflict_do_nothing(index_elements=keys))


class Rows:
    """The part of SQLAlchemy's Result that the repositories use, with all rows in memory."""

    def __init__(self, names: Sequence[str], rows: list[Any], rowcount: int) -> None:
        self._names = names
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def mappings(self) -> Rows:
        return Rows((), [dict(zip(self._names, row, strict=True)) for row in self._rows], self.rowcount)

    def scalars(self) -> Rows:
        return Rows((), [row[0] for row in self._rows], self.rowcount)

    def all(self) -> list[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        (row,) = self._rows
        return row

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        return self.one()[0] if self._rows else None


def run(raw: sqlite3.Connection, statement: Any, parameters: Mapping[str, Any] | list[Any]) -> Rows:
    """Run a prepared statement; with a list of parameters once for each, returning no rows."""
    compiled = _compiled(statement, parameters[0] if isinstance(parameters, list) else parameters)
    with sqlalchemy_errors(compiled.sql):
        if isinstance(parameters, list):
            cursor = raw.executemany(compiled.sql, [compiled.values(each) for each in parameters])
            return Rows((), [], cursor.rowcount)
        cursor = raw.execute(compiled.sql, compiled.values(parameters))
        rows = [compiled.row(row) for row in cursor] if cursor.description else []
    return Rows(compiled.names, rows, cursor.rowcount)


@contextmanager
def sqlalchemy_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise IntegrityError(doing, None, error) from error
    except sqlite3.Error as error:
        raise DBAPIError(doing, None, error) from error


@dataclass(frozen=True, slots=True)
class _Compiled:
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


_compiled_statements: dict[tuple[int, tuple[str, ...]], tuple[Any, _Compiled]] = {}
"""Compiled statements by identity. The statement is kept alive too, so that its id is not reused."""


def _compiled(statement: Any, parameters: Mapping[str, Any]) -> _Compiled:
    key = (id(statement), tuple(parameters))
    found = _compiled_statements.get(key)
    if found is None:
        found = _compiled_statements[key] = (statement, _compile(statement, parameters))
    return found[1]


def _compile(statement: ClauseElement, parameters: Mapping[str, Any]) -> _Compiled:
    compiled = statement.compile(
        dialect=DIALECT, column_keys=list(parameters) or None, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - for the type checker: only DDL compiles to something else
    names = compiled.positiontup or ()
    own = compiled.params
    columns = tuple(getattr(statement, "exported_columns", ()))
    converts = [(index, column.type.dialect_impl(DIALECT)) for index, column in enumerate(columns)]
    return _Compiled(
        sql=str(compiled),
        places=[(name, own.get(name), _bind_processor(compiled, name)) for name in names],
        names=[column.name for column in columns],
        converts=[
            (index, convert)
            for index, kind in converts
            if (convert := kind.result_processor(DIALECT, None)) is not None
        ],
    )


def _bind_processor(compiled: SQLCompiler, name: str) -> _Convert:
    bind = compiled.binds.get(name)
    if bind is None:  # an element of a list of values, which has the list's type
        return None
    convert: _Convert = bind.type.dialect_impl(DIALECT).bind_processor(DIALECT)
    return convert
