"""Each sandbox's event log, numbered without gaps.

The number comes from the sandbox's own row, whose lock makes the order of numbers the order of commits: a reader that
has seen number n never finds a smaller one later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Integer, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.redaction import redact_all
from paddock.store.records import EventRow
from paddock.store.statements import prepared
from paddock.store.tables import events, sandboxes

_NUMBER = prepared(
    update(sandboxes)
    .where(sandboxes.c.sandbox_id == bindparam("id"))
    .values(event_seq=sandboxes.c.event_seq + bindparam("count", type_=Integer))
    .returning(sandboxes.c.event_seq, sandboxes.c.timeout)
)
_PUT = prepared(insert(events))
MAX_DATA = 4096
"""Maximum JSON length of an event's data. Longer data is shortened and marked ``truncated``."""
_CUT_TEXT, _CUT_ITEMS = 1000, 4
"""To how much each text (as JSON), and each list, is shortened."""


async def append(
    connection: AsyncConnection, sandbox_id: str, at: float, *new: tuple[str, Mapping[str, Any]], **also: Any
) -> int | None:
    """Append events, and set other columns of the row (``also``) in the same statement.

    Returns the sandbox's current idle timeout; None if there is no such row.
    """
    row = (await connection.execute(_NUMBER, {"id": sandbox_id, "count": len(new), **also})).first()
    if row is None:
        return None
    last, timeout = row
    if new:
        numbered = enumerate(new, start=last - len(new) + 1)
        rows = [_row(EventRow(sandbox_id, seq, kind, at, data)) for seq, (kind, data) in numbered]
        await connection.execute(_PUT, rows)
    return int(timeout)


async def put(connection: AsyncConnection, event: EventRow) -> None:
    """Insert an event whose number the caller took from the sandbox's row in this transaction."""
    await connection.execute(_PUT, _row(event))


async def after(connection: AsyncConnection, sandbox_id: str, seq: int, limit: int) -> list[EventRow]:
    query = (
        select(events).where(events.c.sandbox_id == sandbox_id, events.c.seq > seq).order_by(events.c.seq).limit(limit)
    )
    return [EventRow(**row) for row in (await connection.execute(query)).mappings()]


async def between(
    connection: AsyncConnection,
    sandbox_id: str,
    since: float | None,
    until: float | None,
    limit: int,
    *,
    newest_first: bool,
) -> list[EventRow]:
    query = select(events).where(events.c.sandbox_id == sandbox_id)
    if since is not None:
        query = query.where(events.c.at >= since)
    if until is not None:
        query = query.where(events.c.at <= until)
    query = query.order_by(events.c.seq.desc() if newest_first else events.c.seq).limit(limit)
    return [EventRow(**row) for row in (await connection.execute(query)).mappings()]


async def last_seq(connection: AsyncConnection, sandbox_id: str) -> int:
    query = select(func.coalesce(func.max(events.c.seq), 0)).where(events.c.sandbox_id == sandbox_id)
    return int((await connection.execute(query)).scalar_one())


async def forget(connection: AsyncConnection, sandbox_ids: Sequence[str]) -> None:
    if sandbox_ids:
        await connection.execute(delete(events).where(events.c.sandbox_id.in_(sandbox_ids)))


async def keep_latest(connection: AsyncConnection, count: int, of: Sequence[str] | None = None) -> None:
    """Delete the older events of sandboxes that have more than ``count``; of all owners or only of these. Numbers are
    kept."""
    first = select(func.min(events.c.seq)).where(events.c.sandbox_id == sandboxes.c.sandbox_id).scalar_subquery()
    query = select(sandboxes.c.sandbox_id, sandboxes.c.event_seq).where(
        sandboxes.c.event_seq > count, first <= sandboxes.c.event_seq - count
    )
    if of is not None:
        query = query.where(sandboxes.c.owner_id.in_(of))
    for sandbox_id, last in (await connection.execute(query)).all():
        older = (events.c.sandbox_id == sandbox_id, events.c.seq <= last - count)
        await connection.execute(delete(events).where(*older))


async def crowded(connection: AsyncConnection, count: int) -> dict[str, int]:
    """Owners with more than ``count`` events over all their sandboxes, deleted ones included, and how many events per
    sandbox may stay to reach that limit. Sandboxes with fewer keep all."""
    total = func.sum(sandboxes.c.event_seq)
    query = select(sandboxes.c.owner_id).group_by(sandboxes.c.owner_id).having(total > count)
    found = {}
    for owner_id in (await connection.execute(query)).scalars().all():
        numbers = select(sandboxes.c.event_seq).where(sandboxes.c.owner_id == owner_id)
        found[owner_id] = _share((await connection.execute(numbers)).scalars().all(), count)
    return found


def data_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data as stored: without secrets, and shortened to the maximum length."""
    kept: dict[str, Any] = redact_all(data)
    if len(json.dumps(kept)) <= MAX_DATA:
        return kept
    short = {name: _cut(value) for name, value in kept.items()}
    return {**short, "truncated": True} if len(json.dumps(short)) <= MAX_DATA else {"truncated": True}


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(each) for each in value[:_CUT_ITEMS]]
    if not isinstance(value, str):
        return value
    text = value[:_CUT_TEXT]
    while len(json.dumps(text)) > _CUT_TEXT:
        text = text[: len(text) * 3 // 4]
    return text


def _share(numbers: Sequence[int], count: int) -> int:
    """The largest share per sandbox with which all together stay within ``count``."""
    left = count
    for place, number in enumerate(ordered := sorted(numbers)):
        share = left // (len(ordered) - place)
        if number > share:
            return max(1, share)
        left -= number
    return max(1, ordered[-1]) if ordered else count


def _row(event: EventRow) -> dict[str, Any]:
    values = {"sandbox_id": event.sandbox_id, "seq": event.seq, "type": event.type, "at": event.at}
    return {**values, "data": data_of(event.data)}
