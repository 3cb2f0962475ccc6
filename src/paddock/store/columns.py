"""From the fields of a record to the columns of its table: a record's dataclass is the one statement of its fields.

What the type of a field does not tell of its column, marks in ``Annotated`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, StrEnum, auto
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sqlalchemy import JSON, Boolean, Column, Double, Float, Integer, Text
from sqlalchemy.types import BigInteger

T = TypeVar("T")

BigInt = BigInteger().with_variant(Integer, "sqlite")


class Mark(Enum):
    MOMENT = auto()
    BIG = auto()
    """More than 32 bits."""
    LABEL = auto()
    SECRET = auto()
    """May hold secrets: what is overwritten is removed from the write-ahead log too."""
    UNIQUE = auto()


@dataclass(frozen=True, slots=True)
class Fallback:
    """What stands for a stored value that cannot be read; where there is none, an empty one does."""

    value: Any


@dataclass(frozen=True, slots=True)
class Named:
    """The column's name, where it is not the field's."""

    name: str


Moment = Annotated[float, Mark.MOMENT]
"""Epoch seconds by the system clock; moved when the clock is set."""
Big = Annotated[int, Mark.BIG]
Label = Annotated[T, Mark.LABEL]
"""Also stored beside the machine, so that the row can be restored if the database is lost."""


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of a record, as its annotation states it."""

    name: str
    column: str
    kind: type
    """Without None, and without what a container holds."""
    optional: bool
    marks: frozenset[Mark]
    fallback: Any

    @property
    def json(self) -> bool:
        return self.kind in (Mapping, Sequence)

    @property
    def enum(self) -> bool:
        return issubclass(self.kind, StrEnum)

    def read(self, value: Any) -> Any:
        """A value from JSON. Raises ValueError or TypeError for one that the field cannot hold."""
        if value is None and self.optional:
            return None
        containers: dict[Any, Callable[[Any], Any]] = {Mapping: dict, Sequence: list}
        return containers.get(self.kind, self.kind)(value)


@cache
def fields_of(record: type) -> tuple[StoredField, ...]:
    hints = get_type_hints(record, include_extras=True)
    return tuple(_field(each.name, hints[each.name]) for each in fields(record))


def columns_of(record: type, *primary_key: str) -> list[Column[Any]]:
    return [_column(field, primary=field.name in primary_key) for field in fields_of(record)]


def _column(field: StoredField, *, primary: bool) -> Column[Any]:
    unique = Mark.UNIQUE in field.marks or None
    nullable = field.optional and not primary
    return Column(field.column, _type(field), key=field.name, primary_key=primary, nullable=nullable, unique=unique)


def _type(field: StoredField) -> Any:
    if field.json:
        return JSON(none_as_null=field.optional)
    if field.enum:
        return Text
    if field.kind is float and Mark.MOMENT in field.marks:
        return Double
    return BigInt if Mark.BIG in field.marks else {str: Text, int: Integer, float: Float, bool: Boolean}[field.kind]


def _field(name: str, annotation: Any) -> StoredField:
    marks: list[Any] = []
    optional = False
    while (origin := get_origin(annotation)) in (Annotated, Union, UnionType):
        if origin is Annotated:
            annotation, *found = get_args(annotation)
            marks += found
        else:
            optional = True
            (annotation,) = (each for each in get_args(annotation) if each is not type(None))
    kind = origin or annotation
    own = [mark.value for mark in marks if isinstance(mark, Fallback)]
    empty: Any = None if optional else {Mapping: {}, Sequence: []}.get(kind)
    return StoredField(
        name=name,
        column=next((mark.name for mark in marks if isinstance(mark, Named)), name),
        kind=kind,
        optional=optional,
        marks=frozenset(mark for mark in marks if isinstance(mark, Mark)),
        fallback=own[0] if own else empty,
    )
