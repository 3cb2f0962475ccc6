"""Usage per sandbox and day: seconds of running time, commands, bytes in and out. The basis for billing and charts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.records import SandboxRow, UsageRow
from paddock.store.statements import Upsert
from paddock.store.tables import sandboxes, usage

_SUMS = [func.sum(usage.c[name]).label(name) for name in ("seconds", "commands", "bytes_in", "bytes_out")]


def _upsert(statement: Any) -> Any:
    counted = ("seconds", "commands", "bytes_in", "bytes_out")
    return statement.on_conflict_do_update(
        index_elements=["sandbox_id", "day"],
        set_={name: usage.c[name] + statement.excluded[name] for name in counted},
    )


_ADD = Upsert(usage, _upsert)


async def add(
    connection: AsyncConnection,
    sandbox: SandboxRow,
    at: float,
    *,
    seconds: float = 0.0,
    commands: int = 0,
    bytes_in: int = 0,
    bytes_out: int = 0,
) -> None:
    new = {"seconds": seconds, "commands": commands, "bytes_in": bytes_in, "bytes_out": bytes_out}
    whose = {"sandbox_id": sandbox.sandbox_id, "owner_id": sandbox.owner_id, "user_id": sandbox.user_id}
    await connection.execute(_ADD.on(connection), {**whose, "day": _day(at), **new})


async def add_running(connection: AsyncConnection, sandbox: SandboxRow, since: float, until: float) -> None:
    """Add running time, split at midnight UTC. Adds nothing if the clock went back."""
    for start, seconds in _by_day(since, until):
        await add(connection, sandbox, start, seconds=seconds)


async def per_day(connection: AsyncConnection, sandbox_id: str) -> list[UsageRow]:
    query = select(usage).where(usage.c.sandbox_id == sandbox_id).order_by(usage.c.day)
    return [
        UsageRow(**{name: row[name] for name in UsageRow.__slots__})
        for row in (await connection.execute(query)).mappings()
    ]


async def per_user(
    connection: AsyncConnection,
    *,
    owner_id: str | None,
    user_id: str | None,
    since: str | None,
    until: str | None,
) -> list[UsageRow]:
    """A row per user and day."""
    query = select(usage.c.user_id, usage.c.day, *_SUMS).group_by(usage.c.user_id, usage.c.day)
    if owner_id is not None:
        query = query.where(usage.c.owner_id == owner_id)
    if user_id is not None:
        query = query.where(usage.c.user_id == user_id)
    if since is not None:
        query = query.where(usage.c.day >= since)
    if until is not None:
        query = query.where(usage.c.day <= until)
    rows = (await connection.execute(query.order_by(usage.c.day, usage.c.user_id).limit(10_000))).mappings()
    return [
        UsageRow(
            user_id=row["user_id"],
            sandbox_id=None,
            day=row["day"],
            seconds=float(row["seconds"]),
            commands=int(row["commands"]),
            bytes_in=int(row["bytes_in"]),
            bytes_out=int(row["bytes_out"]),
        )
        for row in rows
    ]


async def running(connection: AsyncConnection, *, owner_id: str | None, user_id: str | None) -> list[tuple[str, float]]:
    """Users of running sandboxes, and since when their running time is not recorded."""
    query = select(sandboxes.c.user_id, sandboxes.c.running_since).where(sandboxes.c.running_since.is_not(None))
    if owner_id is not None:
        query = query.where(sandboxes.c.owner_id == owner_id)
    if user_id is not None:
        query = query.where(sandboxes.c.user_id == user_id)
    return [(str(whose), float(since)) for whose, since in await connection.execute(query)]


def days(since: float, until: float) -> Iterator[tuple[str, float]]:
    """Seconds on each day in UTC."""
    for start, seconds in _by_day(since, until):
        yield _day(start), seconds


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _by_day(since: float, until: float) -> Iterator[tuple[float, float]]:
    while since < until:
        midnight = datetime.fromtimestamp(since, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        end = min(until, (midnight + timedelta(days=1)).timestamp())
        yield since, end - since
        since = end
