"""Lists of sandboxes: by their properties, in one of several orders, a page at a time.

Pages use keyset pagination over indexes without deleted sandboxes: the hundredth page costs as much as the first.
Metadata and ``matches`` are checked along the order until the page is full.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, cast, exists, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import Invalid
from paddock.models import State
from paddock.store.records import SandboxRow
from paddock.store.sandboxes import COLUMNS, record
from paddock.store.tables import ALIVE, sandboxes

_Condition = ColumnElement[bool]

_MATCHED_AT_ONCE = 200
"""Rows read at a time where ``matches`` may refuse any number of them."""
_MAX_NUMBER = 1 << 53
"""No number that a list is ordered by is larger."""
_ORDERS: Mapping[str, ColumnElement[Any]] = {
    "name": func.coalesce(sandboxes.c.name, sandboxes.c.key),
    "cpu": sandboxes.c.cpu,
    "memory_mb": sandboxes.c.memory_mb,
    "disk_mb": sandboxes.c.disk_mb,
    "last_activity_at": sandboxes.c.last_activity_at,
    "created_at": sandboxes.c.created_at,
    "started_at": sandboxes.c.started_at,
}


@dataclass(frozen=True, slots=True)
class TemplateFilter:
    """Sandboxes of this template, requested under this alias; ``unnamed``: also those requested without one."""

    template_id: str
    alias: str | None = None
    unnamed: bool = True


@dataclass(frozen=True, slots=True)
class ListingFilter:
    """Which sandboxes, and in which order. What is not given does not matter."""

    owner_id: str | None = None
    user_id: str | None = None
    states: Sequence[State] | None = None
    """None: all but deleted ones."""
    node_ids: Collection[str] | None = None
    """Only sandboxes recorded on one of these nodes."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """All pairs must match."""
    started_after: float | None = None
    """Started at this time or later."""
    template: TemplateFilter | None = None
    matches: Callable[[SandboxRow], bool] | None = None
    """A condition on the row that depends on the current time, or on what a facade stores with it."""
    order: str = "created_at"
    """One of the keys of ``_ORDERS``. Sandboxes without a place in the order are not listed."""
    descending: bool = True


async def page(
    connection: AsyncConnection, wanted: ListingFilter, *, cursor: str | None, limit: int
) -> tuple[list[SandboxRow], str | None]:
    """The page after the cursor, and the cursor of the next page if there is one."""
    place = None if cursor is None else _read_cursor(wanted, cursor)
    matches = wanted.matches or (lambda _: True)
    batch = limit + 1 if wanted.matches is None else _MATCHED_AT_ONCE
    conditions = _conditions(connection, wanted)
    order = (_ORDERS[wanted.order], sandboxes.c.sandbox_id)
    query = select(*COLUMNS, order[0].label("place")).where(*conditions)
    query = query.order_by(*(each.desc() if wanted.descending else each.asc() for each in order)).limit(batch)
    found: list[SandboxRow] = []
    last: tuple[Any, str] = ("", "")
    while True:
        beyond = [] if place is None else [_beyond(tuple_(*order), tuple_(*place), wanted.descending)]
        rows = list((await connection.execute(query.where(*beyond))).mappings())
        for row in rows:
            values = dict(row)
            at = values.pop("place")
            sandbox = record(values)
            place = (at, sandbox.sandbox_id)
            if not matches(sandbox):
                continue
            if len(found) == limit:
                return found, _make_cursor(wanted, *last)
            found.append(sandbox)
            last = place
        if len(rows) < batch:
            return found, None


async def count(connection: AsyncConnection, wanted: ListingFilter) -> int:
    query = select(func.count()).select_from(sandboxes).where(*_conditions(connection, wanted))
    return int((await connection.execute(query)).scalar_one())


def _beyond(place: Any, last: Any, descending: bool) -> _Condition:
    condition: _Condition = place < last if descending else place > last
    return condition


def _conditions(connection: AsyncConnection, wanted: ListingFilter) -> list[Any]:
    # An index without deleted sandboxes is only used if the query contains its condition, literally.
    found: list[Any] = []
    if wanted.states is None or wanted.order == "started_at":
        found.append(ALIVE)
    if wanted.owner_id is not None:
        found.append(sandboxes.c.owner_id == wanted.owner_id)
    if wanted.user_id is not None:
        found.append(sandboxes.c.user_id == wanted.user_id)
    if wanted.states is not None:
        found.append(sandboxes.c.state.in_(wanted.states))
    if wanted.node_ids is not None:
        found.append(sandboxes.c.node_id.in_(sorted(wanted.node_ids)))
    if wanted.order == "started_at":
        found.append(sandboxes.c.started_at.is_not(None))
    if wanted.started_after is not None:
        found.append(sandboxes.c.started_at >= wanted.started_after)
    if wanted.template is not None:
        found.append(_made_from(wanted.template))
    holds = _sqlite_holds if connection.dialect.name == "sqlite" else _postgres_holds
    return found + [holds(name, value) for name, value in wanted.metadata.items()]


def _made_from(template: TemplateFilter) -> _Condition:
    same = sandboxes.c.template_id == template.template_id
    if template.alias is None:
        return same
    named = sandboxes.c.alias == template.alias
    return and_(same, or_(named, sandboxes.c.alias.is_(None)) if template.unnamed else named)


def _sqlite_holds(name: str, value: str) -> _Condition:
    # Not by a JSON path: a name may contain characters that are special in paths.
    pairs = func.json_each(sandboxes.c.metadata).table_valued("key", "value")
    return exists(select(1).select_from(pairs).where(pairs.c.key == name, cast(pairs.c.value, Text) == value))


def _postgres_holds(name: str, value: str) -> _Condition:
    held: _Condition = sandboxes.c.metadata[name].as_string() == value
    return held


def _make_cursor(wanted: ListingFilter, at: Any, sandbox_id: str) -> str:
    text = json.dumps([wanted.order, wanted.descending, at, sandbox_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(wanted: ListingFilter, cursor: str) -> tuple[Any, str]:
    """Parse a cursor; it is valid only for the order for which it was made."""
    try:
        order, descending, at, sandbox_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        known = isinstance(at, str) if wanted.order == "name" else isinstance(at, int | float) and abs(at) < _MAX_NUMBER
        if (order, descending) != (wanted.order, wanted.descending) or not known:
            raise ValueError
        if not isinstance(sandbox_id, str) or "\0" in sandbox_id or "\0" in str(at) or not sandbox_id.isascii():
            raise ValueError
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Invalid(
            "This page token (cursor) is not one that this server gave out. Start again without it."
        ) from None
    return at, sandbox_id
