"""Deadlines as rows. A server claims due rows for a limited time. The server that acts consumes the row in the
transaction of the intent, under the generation it read, so a deadline is executed at most once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import and_, bindparam, case, delete, func, literal, or_, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.models import State, TimeoutAction, TimeoutFrom
from paddock.store.invalid_rows import say_once
from paddock.store.records import Deadline, DeadlineKind
from paddock.store.servers import lives
from paddock.store.statements import Upsert, prepared
from paddock.store.tables import ALIVE, deadlines, sandboxes, servers

_COLUMNS = [
    deadlines.c[name] for name in ("sandbox_id", "kind", "action", "due_at", "warn_at", "generation", "attempts")
]

_MAX_ATTEMPTS = 1000


def _upsert(statement: Any) -> Any:
    changed = ("action", "due_at", "warn_at", "wake_at", "claimed_by", "claimed_until", "attempts")
    return statement.on_conflict_do_update(
        index_elements=["sandbox_id", "kind"],
        set_={name: statement.excluded[name] for name in changed} | {"generation": deadlines.c.generation + 1},
    )


_PUT = Upsert(deadlines, _upsert)
_PUSH_OUT = prepared(
    update(deadlines)
    .where(deadlines.c.sandbox_id == bindparam("id"), deadlines.c.kind == DeadlineKind.IDLE)
    .values(generation=deadlines.c.generation + 1)
)
_REMOVE = prepared(delete(deadlines).where(deadlines.c.sandbox_id == bindparam("id")))
_SAME_KIND = (deadlines.c.sandbox_id == bindparam("id"), deadlines.c.kind == bindparam("which"))
_SAME = (*_SAME_KIND, deadlines.c.generation == bindparam("seen"))
_GET = prepared(select(*_COLUMNS).where(*_SAME_KIND))
_REMOVE_KIND = prepared(delete(deadlines).where(*_SAME_KIND))
_CONSUME = prepared(delete(deadlines).where(*_SAME, deadlines.c.due_at <= bindparam("now")))
_UNCLAIMED: Any = {"claimed_by": None, "claimed_until": None}
_MARK_WARNED = prepared(
    update(deadlines)
    .where(*_SAME, deadlines.c.warn_at.is_not(None))
    .values(warn_at=None, wake_at=deadlines.c.due_at, **_UNCLAIMED)
)
_PUT_OFF = prepared(
    update(deadlines)
    .where(*_SAME)
    .values(
        attempts=case((deadlines.c.attempts < _MAX_ATTEMPTS, deadlines.c.attempts + 1), else_=_MAX_ATTEMPTS),
        **_UNCLAIMED,
    )
)
_NEXT = (
    select(*_COLUMNS)
    .where(deadlines.c.sandbox_id.in_(bindparam("ids", expanding=True)))
    .order_by(deadlines.c.due_at.desc())
)
_NEXT_OF_ONE = prepared(
    select(*_COLUMNS).where(deadlines.c.sandbox_id == bindparam("id")).order_by(deadlines.c.due_at).limit(1)
)


async def put(
    connection: AsyncConnection,
    sandbox_id: str,
    kind: DeadlineKind,
    action: TimeoutAction,
    due_at: float,
    warn_at: float | None = None,
) -> None:
    """Set or replace the sandbox's deadline of this kind. The new generation voids every earlier claim."""
    values: dict[str, Any] = {"sandbox_id": sandbox_id, "kind": kind, "action": action, "generation": 1}
    await connection.execute(_PUT.on(connection), {**values, **_fresh(due_at, warn_at)})


async def push_out(connection: AsyncConnection, sandbox_id: str, due_at: float, warn_at: float | None) -> bool:
    """Move the idle deadline. False if there is none, as is always so unless the sandbox is running."""
    done = await connection.execute(_PUSH_OUT, {"id": sandbox_id, **_fresh(due_at, warn_at)})
    return done.rowcount == 1


async def get(connection: AsyncConnection, sandbox_id: str, kind: DeadlineKind) -> Deadline | None:
    return _first((await connection.execute(_GET, {"id": sandbox_id, "which": kind})).mappings().first())


async def remove(connection: AsyncConnection, sandbox_id: str, kind: DeadlineKind | None = None) -> None:
    """Remove all deadlines of the sandbox, or the one of this kind."""
    if kind is None:
        await connection.execute(_REMOVE, {"id": sandbox_id})
    else:
        await connection.execute(_REMOVE_KIND, {"id": sandbox_id, "which": kind})


async def claim(
    connection: AsyncConnection,
    server_id: str,
    now: float,
    until: float,
    limit: int,
    node_ids: Collection[str] | None = None,
    *,
    server_ttl: float | None = None,
    in_hand: Collection[str] = (),
) -> list[Deadline]:
    """Claim due deadlines that are not claimed. ``node_ids``: only of sandboxes on these nodes, or without a recorded
    node.

    ``server_ttl``: a claim is void if its server sent no heartbeat for this long. A claim of this server is void if the
    sandbox is not ``in_hand``: the database was unavailable when it should have been executed.
    """
    # A claim that ends later than any valid one was made before the clock was set back.
    free = [
        deadlines.c.claimed_until.is_(None),
        deadlines.c.claimed_until <= now,
        deadlines.c.claimed_until > 2 * until - now,
    ]
    if server_ttl is not None:
        others = select(servers.c.server_id).where(servers.c.server_id != server_id, lives(now, server_ttl))
        free.append(and_(deadlines.c.claimed_by.not_in(others), deadlines.c.sandbox_id.not_in(sorted(in_hand))))
    due = (
        select(deadlines.c.sandbox_id, deadlines.c.kind)
        .where(deadlines.c.wake_at <= now, or_(*free))
        .order_by(deadlines.c.wake_at)
        .limit(limit)
    )
    if node_ids is not None:
        elsewhere = select(sandboxes.c.sandbox_id).where(sandboxes.c.node_id.not_in(sorted(node_ids)))
        due = due.where(deadlines.c.sandbox_id.not_in(elsewhere.where(ALIVE)))
    if connection.dialect.name != "sqlite":
        due = due.with_for_update(skip_locked=True)
    keys = [tuple(row) for row in await connection.execute(due)]
    if not keys:
        return []
    same = or_(*(and_(deadlines.c.sandbox_id == key[0], deadlines.c.kind == key[1]) for key in keys))
    statement = update(deadlines).where(same).values(claimed_by=server_id, claimed_until=until).returning(*_COLUMNS)
    return _records((await connection.execute(statement)).mappings())


async def consume(connection: AsyncConnection, deadline: Deadline, now: float) -> bool:
    """Delete the row if it is unchanged since it was claimed, and still due."""
    return (await connection.execute(_CONSUME, {**_same(deadline), "now": now})).rowcount == 1


async def mark_warned(connection: AsyncConnection, deadline: Deadline) -> bool:
    return (await connection.execute(_MARK_WARNED, _same(deadline))).rowcount == 1


async def put_off(connection: AsyncConnection, deadline: Deadline, until: float) -> bool:
    """The action failed: keep the deadline and retry it later."""
    return (await connection.execute(_PUT_OFF, {**_same(deadline), "wake_at": until})).rowcount == 1


async def shift(connection: AsyncConnection, seconds: float, node_ids: Collection[str] | None = None) -> None:
    """All of them, by as much as the clock was set. Null stays null. ``node_ids``: those of sandboxes there."""
    moved = ("due_at", "warn_at", "wake_at", "claimed_until")
    statement = update(deadlines).values({name: deadlines.c[name] + seconds for name in moved})
    if node_ids is not None:
        there = select(sandboxes.c.sandbox_id).where(sandboxes.c.node_id.in_(sorted(node_ids)))
        statement = statement.where(deadlines.c.sandbox_id.in_(there))
    await connection.execute(statement)


async def next_of(connection: AsyncConnection, sandbox_ids: Iterable[str]) -> dict[str, Deadline]:
    """The earliest deadline of each sandbox that has one."""
    found = (await connection.execute(_NEXT, {"ids": list(sandbox_ids)})).mappings()
    return {deadline.sandbox_id: deadline for deadline in _records(found)}


async def next_of_one(connection: AsyncConnection, sandbox_id: str) -> Deadline | None:
    return _first((await connection.execute(_NEXT_OF_ONE, {"id": sandbox_id})).mappings().first())


async def missing(connection: AsyncConnection, limit: int = 500) -> list[str]:
    """Settled sandboxes that lack the deadline of their state, as after a manual edit or a restored backup."""
    wanted = case(
        (sandboxes.c.state == State.RUNNING, literal(DeadlineKind.IDLE.value)),
        else_=literal(DeadlineKind.RETENTION.value),
    )
    query = (
        select(sandboxes.c.sandbox_id)
        .outerjoin(deadlines, and_(deadlines.c.sandbox_id == sandboxes.c.sandbox_id, deadlines.c.kind == wanted))
        .where(
            sandboxes.c.state.in_((State.RUNNING, State.PAUSED, State.FAILED)),
            deadlines.c.sandbox_id.is_(None),
        )
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def too_far(connection: AsyncConnection, now: float, longest: float, limit: int = 500) -> list[str]:
    """Idle deadlines further away than a whole timeout, and fixed ends further away than the maximum: the clock was set
    back since they were set."""
    most = case((sandboxes.c.timeout_from == TimeoutFrom.ACTIVITY, sandboxes.c.timeout), else_=literal(longest))
    query = (
        select(deadlines.c.sandbox_id)
        .join(sandboxes, sandboxes.c.sandbox_id == deadlines.c.sandbox_id)
        .where(deadlines.c.kind == DeadlineKind.IDLE, deadlines.c.due_at > now + most + 1)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def count(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(func.count()).select_from(deadlines))).scalar_one())


def _fresh(due_at: float, warn_at: float | None) -> dict[str, Any]:
    """Column values of a deadline that is neither claimed nor tried."""
    return {
        "due_at": due_at,
        "warn_at": warn_at,
        "wake_at": due_at if warn_at is None else warn_at,
        "claimed_by": None,
        "claimed_until": None,
        "attempts": 0,
    }


def _same(deadline: Deadline) -> dict[str, Any]:
    return {"id": deadline.sandbox_id, "which": deadline.kind, "seen": deadline.generation}


def _first(row: RowMapping | None) -> Deadline | None:
    found = _records([] if row is None else [row])
    return found[0] if found else None


def _records(rows: Iterable[RowMapping]) -> list[Deadline]:
    """The valid deadlines. An invalid one is logged once and skipped, so that the others are handled."""
    found = []
    for row in rows:
        values: dict[str, Any] = dict(row)
        try:
            values["kind"] = DeadlineKind(values["kind"])
            values["action"] = TimeoutAction(values["action"])
        except ValueError as error:
            say_once("a deadline cannot be read and is left alone", sandbox_id=values["sandbox_id"], problem=str(error))
            continue
        found.append(Deadline(**values))
    return found
