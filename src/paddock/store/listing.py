"""Lists sandboxes by start time, with the filters of E2B's clients.

Pages use keyset pagination on an index without deleted sandboxes: the hundredth page costs as much as the first. A
metadata filter reads along that index until the page is full.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class TemplateFilter:
    """Sandboxes of this template, requested under this alias; ``unnamed``: also those requested without one."""

    template_id: str
    alias: str | None = None
    unnamed: bool = True


@dataclass(frozen=True, slots=True)
class ListingFilter:
    owner_id: str
    states: Sequence[State]
    metadata: Mapping[str, str] = field(default_factory=dict)
    """All pairs must match."""
    started_after: float | None = None
    """Started at this time or later."""
    template: TemplateFilter | None = None


async def page(
    connection: AsyncConnection, wanted: ListingFilter, *, newest_first: bool, cursor: str | None, limit: int
) -> tuple[list[SandboxRow], str | None]:
    query = select(*COLUMNS).where(*_conditions(connection, wanted))
    place = tuple_(sandboxes.c.started_at, sandboxes.c.sandbox_id)
    if cursor is not None:
        after = tuple_(*_read_cursor(cursor))
        query = query.where(place < after if newest_first else place > after)
    order = (sandboxes.c.started_at, sandboxes.c.sandbox_id)
    query = query.order_by(*(column.desc() if newest_first else column.asc() for column in order)).limit(limit + 1)
    found = [record(row) for row in (await connection.execute(query)).mappings()]
    return found[:limit], _make_cursor(found[limit - 1]) if len(found) > limit else None


async def count(connection: AsyncConnection, wanted: ListingFilter) -> int:
    query = select(func.count()).select_from(sandboxes).where(*_conditions(connection, wanted))
    return int((await connection.execute(query)).scalar_one())


def _conditions(connection: AsyncConnection, wanted: ListingFilter) -> list[Any]:
    # Sandboxes that have not started yet have no sort key and are not listed.
    found: list[Any] = [
        ALIVE,
        sandboxes.c.owner_id == wanted.owner_id,
        sandboxes.c.state.in_(wanted.states),
        sandboxes.c.started_at.is_not(None),
    ]
    if wanted.started_after is not None:
        found.append(sandboxes.c.started_at >= wanted.started_after)
    if wanted.template is not None:
        found.append(_made_from(wanted.template))
    return found + metadata_conditions(connection, wanted.metadata)


def metadata_conditions(connection: AsyncConnection, metadata: Mapping[str, str]) -> list[Any]:
    """Conditions that every one of these pairs is present."""
    holds = _sqlite_holds if connection.dialect.name == "sqlite" else _postgres_holds
    return [holds(name, value) for name, value in metadata.items()]


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


def _make_cursor(sandbox: SandboxRow) -> str:
    text = json.dumps([sandbox.started_at, sandbox.sandbox_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        started_at, sandbox_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(started_at, float) or not math.isfinite(started_at):
            raise ValueError
        if not isinstance(sandbox_id, str) or "\0" in sandbox_id or not sandbox_id.isascii():
            raise ValueError
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Invalid("The token is not one that this server gave out. Start again without it.") from None
    return started_at, sandbox_id
