"""Searches an owner's sandboxes by their properties, in one of several orders, a page at a time.

Uses keyset pagination. Owner and labels are filtered in SQL; other conditions are checked row by row until the page is
full, because they depend on the current time or on what a facade stores with the row.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select

from paddock.errors import Invalid
from paddock.store.database import Store
from paddock.store.listing import metadata_conditions
from paddock.store.records import SandboxRow
from paddock.store.sandboxes import COLUMNS, record
from paddock.store.tables import ALIVE, sandboxes

_BATCH = 200
_ORDERS: Mapping[str, ColumnElement[Any]] = {
    "name": func.coalesce(sandboxes.c.name, sandboxes.c.key),
    "cpu": sandboxes.c.cpu,
    "memoryGib": sandboxes.c.memory_mb,
    "diskGib": sandboxes.c.disk_mb,
    "lastActivityAt": sandboxes.c.last_activity_at,
    "createdAt": sandboxes.c.created_at,
}
ORDERS = tuple(_ORDERS)


@dataclass(frozen=True, slots=True)
class SearchFilter:
    owner_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    matches: Callable[[SandboxRow], bool] = lambda sandbox: True
    order: str = "createdAt"
    descending: bool = True
    cursor: str | None = None
    limit: int = 100


async def page(store: Store, wanted: SearchFilter) -> tuple[list[SandboxRow], str | None]:
    place = None if wanted.cursor is None else _read_cursor(wanted)
    found: list[SandboxRow] = []
    last: tuple[Any, str] = ("", "")
    async with store.read() as connection:
        holds = metadata_conditions(connection, wanted.metadata)
        while True:
            query = select(*COLUMNS, _ORDERS[wanted.order].label("place")).where(*_after(wanted, place), *holds)
            order = (_ORDERS[wanted.order], sandboxes.c.sandbox_id)
            query = query.order_by(*(each.desc() if wanted.descending else each.asc() for each in order))
            rows = list((await connection.execute(query.limit(_BATCH))).mappings())
            for row in rows:
                values = dict(row)
                at = values.pop("place")
                sandbox = record(values)  # type: ignore[arg-type]
                if wanted.matches(sandbox):
                    if len(found) == wanted.limit:
                        return found, _make_cursor(wanted, *last)
                    found.append(sandbox)
                    last = (at, sandbox.sandbox_id)
                place = (at, sandbox.sandbox_id)
            if len(rows) < _BATCH:
                return found, None


def _after(wanted: SearchFilter, place: tuple[Any, str] | None) -> list[Any]:
    found: list[Any] = [ALIVE, sandboxes.c.owner_id == wanted.owner_id]
    if place is not None:
        column, (at, sandbox_id) = _ORDERS[wanted.order], place
        if wanted.descending:
            beyond = or_(column < at, and_(column == at, sandboxes.c.sandbox_id < sandbox_id))
        else:
            beyond = or_(column > at, and_(column == at, sandboxes.c.sandbox_id > sandbox_id))
        found.append(beyond)
    return found


def _make_cursor(wanted: SearchFilter, at: Any, sandbox_id: str) -> str:
    text = json.dumps([wanted.order, wanted.descending, at, sandbox_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(wanted: SearchFilter) -> tuple[Any, str]:
    """Parse a cursor; it is valid only for the order for which it was made."""
    cursor = wanted.cursor or ""
    try:
        order, descending, at, sandbox_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        kind: tuple[type, ...] = (str,) if wanted.order == "name" else (int, float)
        if (order, descending) != (wanted.order, wanted.descending) or not isinstance(at, kind):
            raise ValueError
        if isinstance(at, float) and not math.isfinite(at):
            raise ValueError
        if not isinstance(sandbox_id, str) or "\0" in sandbox_id or "\0" in str(at):
            raise ValueError
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Invalid("The cursor is not one that this server gave out. Start again without it.") from None
    return at, sandbox_id
