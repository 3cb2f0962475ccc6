"""Rows of sandboxes: reads, and changes guarded by a version number. Lists are in :mod:`paddock.store.listing`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.models import State
from paddock.redaction import has_credentials, redact, without_credentials
from paddock.store.columns import Mark, fields_of
from paddock.store.database import CHANGED, wipes
from paddock.store.invalid_rows import mend
from paddock.store.records import SandboxRow
from paddock.store.servers import lives
from paddock.store.statements import prepared
from paddock.store.tables import ALIVE, LIVE, NAMED, UNFINISHED, sandboxes, servers

_FIELDS = fields_of(SandboxRow)
_SECRET = frozenset(field.name for field in _FIELDS if Mark.SECRET in field.marks)
_LABELS = [field for field in _FIELDS if Mark.LABEL in field.marks]
_MOMENTS = [field.name for field in _FIELDS if Mark.MOMENT in field.marks]
COLUMNS = [sandboxes.c[field.name].label(field.name) for field in _FIELDS]

# Statements needed by every request are built once: building them costs more than running them.
_GET = prepared(select(*COLUMNS).where(sandboxes.c.sandbox_id == bindparam("id")))
_GET_AND_LOCK = _GET.with_for_update()
_GET_BY_KEY = prepared(select(*COLUMNS).where(sandboxes.c.key == bindparam("wanted")))
_GET_BY_NAME = prepared(
    select(*COLUMNS).where(NAMED, sandboxes.c.name == bindparam("wanted"), sandboxes.c.owner_id == bindparam("owner"))
)
_ADD = prepared(insert(sandboxes))
_CHANGE = prepared(
    update(sandboxes)
    .where(sandboxes.c.sandbox_id == bindparam("id"), sandboxes.c.version == bindparam("seen"))
    .returning(sandboxes.c.event_seq)
)
_PATCH = prepared(update(sandboxes).where(sandboxes.c.sandbox_id == bindparam("id")))
_LIVE: Any = literal_column(LIVE.text)
_IN_MEMORY = or_(_LIVE, and_(literal_column("state = 'paused'"), sandboxes.c.memory_kept))
_HELD: Any = literal_column("state NOT IN ('deleted', 'failed')")


def _sum(holds: Any, amount: Any) -> Any:
    return func.coalesce(func.sum(case((holds, amount), else_=literal_column("0"))), literal_column("0"))


_TOTALS = prepared(
    select(
        _sum(_HELD, literal_column("1")),
        _sum(_LIVE, literal_column("1")),
        _sum(_LIVE, sandboxes.c.cpu),
        _sum(_IN_MEMORY, sandboxes.c.memory_mb),
        _sum(_IN_MEMORY, sandboxes.c.pids),
        _sum(_HELD, sandboxes.c.disk_mb),
    ).where(sandboxes.c.owner_id == bindparam("owner"), sandboxes.c.sandbox_id != bindparam("other"), ALIVE)
)
_TOTAL_MEMORY = prepared(
    select(_sum(_IN_MEMORY, sandboxes.c.memory_mb)).where(sandboxes.c.sandbox_id != bindparam("other"), ALIVE)
)
_ADVISORY_LOCK = text("SELECT pg_advisory_xact_lock(:number)")
_TOTAL_LOCK = 0x70616465  # any constant unique to Paddock
_LABEL = "paddock.sandbox"
_CHANGE_WITH_EVENT = _CHANGE.values(event_seq=sandboxes.c.event_seq + 1)


@dataclass(frozen=True, slots=True)
class Totals:
    """Resources that an owner's sandboxes hold together."""

    sandboxes: int
    live: int
    """Running sandboxes and those in transition; only they use CPU."""
    cpu: float
    memory_mb: int
    """Of those, and of paused sandboxes that keep their memory. The same applies to processes."""
    processes: int
    disk_mb: int
    """Of all sandboxes that the provider has."""


async def get(connection: AsyncConnection, sandbox_id: str, *, lock: bool = False) -> SandboxRow | None:
    """``lock``: lock the row until the transaction ends (SQLite's write transactions lock everything anyway)."""
    query = _GET_AND_LOCK if lock and connection.dialect.name != "sqlite" else _GET
    row = (await connection.execute(query, {"id": sandbox_id})).mappings().first()
    return record(row) if row else None


async def get_by_key(connection: AsyncConnection, key: str) -> SandboxRow | None:
    row = (await connection.execute(_GET_BY_KEY, {"wanted": key})).mappings().first()
    return record(row) if row else None


async def get_by_name(connection: AsyncConnection, owner_id: str, name: str) -> SandboxRow | None:
    """Among sandboxes that are not deleted."""
    row = (await connection.execute(_GET_BY_NAME, {"wanted": name, "owner": owner_id})).mappings().first()
    return record(row) if row else None


async def keys(connection: AsyncConnection) -> list[str]:
    """Of all sandboxes that are not deleted."""
    return [str(key) for key in (await connection.execute(select(sandboxes.c.key).where(ALIVE))).scalars()]


async def add(connection: AsyncConnection, sandbox: SandboxRow) -> None:
    await connection.execute(_ADD, {field.name: getattr(sandbox, field.name) for field in _FIELDS})


async def change(
    connection: AsyncConnection, sandbox: SandboxRow, *, with_event: bool = False, **values: Any
) -> int | None:
    """Change the row if its version is still the one that was read. None: the caller must read it again and decide
    anew.

    Returns the number of the row's last event; ``with_event`` reserves the next number for an event of the caller.
    """
    _mark_changed(connection, sandbox.sandbox_id)
    if not _SECRET.isdisjoint(values):
        wipes(connection, sandboxes.name)
    if values.get("reason"):
        values["reason"] = redact(values["reason"])
    known = {"id": sandbox.sandbox_id, "seen": sandbox.version, "version": sandbox.version + 1}
    statement = _CHANGE_WITH_EVENT if with_event else _CHANGE
    last = (await connection.execute(statement, {**known, **values})).scalar_one_or_none()
    return None if last is None else int(last)


async def patch(connection: AsyncConnection, sandbox_id: str, **values: Any) -> bool:
    """Set columns that are not part of the state machine, such as the timeout or the last activity."""
    _mark_changed(connection, sandbox_id)
    if not _SECRET.isdisjoint(values):
        wipes(connection, sandboxes.name)
    return (await connection.execute(_PATCH, {"id": sandbox_id, **values})).rowcount == 1


async def hide_git_credentials(connection: AsyncConnection) -> None:
    """Remove credentials from rows of versions that stored them. A create under way still needs its own."""
    suspects = select(sandboxes.c.sandbox_id, sandboxes.c.git_url).where(
        sandboxes.c.git_url.like("%://%@%"), sandboxes.c.state != State.CREATING.value
    )
    for sandbox_id, url in (await connection.execute(suspects)).all():
        if has_credentials(url):
            await patch(connection, sandbox_id, git_url=without_credentials(url))


async def totals(connection: AsyncConnection, owner_id: str, *, other_than: str = "") -> Totals:
    """``other_than``: leave out the sandbox with this id."""
    row = (await connection.execute(_TOTALS, {"owner": owner_id, "other": other_than})).one()
    held, live, cpu, memory, processes, disk = row
    return Totals(int(held), int(live), float(cpu), int(memory), int(processes), int(disk))


async def total_memory(connection: AsyncConnection, *, other_than: str = "") -> int:
    """MB of all owners' sandboxes. Holds a lock until the transaction ends, so that two concurrent creates cannot both
    take the last memory."""
    if connection.dialect.name != "sqlite":  # SQLite's write transactions exclude each other anyway
        await connection.execute(_ADVISORY_LOCK, {"number": _TOTAL_LOCK})
    return int((await connection.execute(_TOTAL_MEMORY, {"other": other_than})).scalar_one())


def _on(node_ids: Collection[str] | None) -> Any:
    """On these nodes, or without a recorded node. None: on any."""
    if node_ids is None:
        return true()
    return or_(sandboxes.c.node_id.in_(sorted(node_ids)), sandboxes.c.node_id.is_(None))


async def unfinished(
    connection: AsyncConnection,
    server_id: str,
    now: float,
    server_ttl: float,
    *,
    node_ids: Collection[str] | None = None,
    limit: int = 1000,
) -> list[SandboxRow]:
    """Transitions on these nodes (None: all) that no other server works on: without a lease, or with that of this
    server or of one whose heartbeats have stopped."""
    working = select(servers.c.server_id).where(lives(now, server_ttl), servers.c.server_id != server_id)
    query = (
        select(*COLUMNS)
        .where(
            UNFINISHED,
            _on(node_ids),
            or_(sandboxes.c.lease_owner.is_(None), sandboxes.c.lease_owner.not_in(working)),
        )
        .order_by(sandboxes.c.state_changed_at)
        .limit(limit)
    )
    return [record(row) for row in (await connection.execute(query)).mappings()]


async def deleting_elsewhere(connection: AsyncConnection, node_ids: Collection[str]) -> list[SandboxRow]:
    """Deletes that other nodes have to carry out."""
    query = select(*COLUMNS).where(
        UNFINISHED,
        sandboxes.c.state == State.DELETING,
        sandboxes.c.node_id.is_not(None),
        sandboxes.c.node_id.not_in(sorted(node_ids)),
    )
    return [record(row) for row in (await connection.execute(query)).mappings()]


async def at_provider(
    connection: AsyncConnection,
    provider: str,
    after: str,
    *,
    node_ids: Collection[str] | None = None,
    limit: int = 2000,
) -> list[tuple[str, State, str | None]]:
    """Ids, states and nodes of the sandboxes that the provider should have on these nodes (None: all), or may have if
    no node is recorded; a batch at a time, ordered by id."""
    query = (
        select(sandboxes.c.sandbox_id, sandboxes.c.state, sandboxes.c.node_id)
        .where(
            sandboxes.c.provider == provider,
            _on(node_ids),
            sandboxes.c.state.in_((State.RUNNING, State.PAUSED, State.FAILED)),
            sandboxes.c.sandbox_id > after,
        )
        .order_by(sandboxes.c.sandbox_id)
        .limit(limit)
    )
    return [(sandbox_id, State(state), node_id) for sandbox_id, state, node_id in await connection.execute(query)]


async def running(connection: AsyncConnection, node_ids: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Id and provider of all running sandboxes on these nodes; None: all."""
    query = select(sandboxes.c.sandbox_id, sandboxes.c.provider)
    query = query.where(sandboxes.c.state == State.RUNNING, _on(node_ids))
    return [(sandbox_id, provider) for sandbox_id, provider in await connection.execute(query)]


async def running_since_before(connection: AsyncConnection, moment: float, limit: int = 500) -> list[str]:
    query = select(sandboxes.c.sandbox_id).where(sandboxes.c.running_since < moment)
    return list((await connection.execute(query.order_by(sandboxes.c.running_since).limit(limit))).scalars())


async def changed_since(connection: AsyncConnection, owner_ids: Sequence[str], since: float) -> list[SandboxRow]:
    """Sandboxes of these owners whose state has changed since then, on any server; deleted ones included."""
    lately = or_(and_(ALIVE, sandboxes.c.state_changed_at >= since), sandboxes.c.deleted_at >= since)
    query = select(*COLUMNS).where(sandboxes.c.owner_id.in_(owner_ids), lately)
    return [record(row) for row in (await connection.execute(query)).mappings()]


async def shift(connection: AsyncConnection, seconds: float, node_ids: Collection[str] | None = None) -> None:
    """Move every moment of the sandboxes that are not deleted by as much as the clock was set, so that their ages and
    the time until their ends stay what they were. Null stays null. ``node_ids``: only sandboxes on these nodes."""
    here = true() if node_ids is None else sandboxes.c.node_id.in_(sorted(node_ids))
    statement = (
        update(sandboxes)
        .where(sandboxes.c.state != State.DELETED, here)
        .values({name: sandboxes.c[name] + seconds for name in _MOMENTS})
        .returning(sandboxes.c.sandbox_id)
    )
    for sandbox_id in (await connection.execute(statement)).scalars():
        _mark_changed(connection, sandbox_id)


async def purge_deleted(connection: AsyncConnection, before: float, kept: int, limit: int = 2000) -> list[str]:
    """Purge sandboxes deleted before this time, and of each owner all but the latest ``kept`` (0: no such limit). Usage
    is kept for billing."""
    deleted = sandboxes.c.state == State.DELETED
    query = select(sandboxes.c.sandbox_id).where(and_(sandboxes.c.deleted_at < before, deleted))
    ids = list((await connection.execute(query.limit(limit))).scalars())
    count = func.count()
    crowded = select(sandboxes.c.owner_id, count).where(deleted).group_by(sandboxes.c.owner_id).having(count > kept)
    for owner_id, found in (await connection.execute(crowded)).all() if kept else ():
        oldest = select(sandboxes.c.sandbox_id).where(deleted, sandboxes.c.owner_id == owner_id)
        oldest = oldest.order_by(sandboxes.c.deleted_at).limit(min(limit, found - kept))
        ids += (await connection.execute(oldest)).scalars()
    for sandbox_id in ids:
        _mark_changed(connection, sandbox_id)
    if ids:
        await connection.execute(delete(sandboxes).where(sandboxes.c.sandbox_id.in_(ids)))
    return ids


def _mark_changed(connection: AsyncConnection, sandbox_id: str) -> None:
    connection.info.setdefault(CHANGED, set()).add(sandbox_id)


def record(row: Mapping[Any, Any]) -> SandboxRow:
    values: dict[str, Any] = dict(row)
    mend(values)
    return SandboxRow(**values)


def labels_of(sandbox: SandboxRow) -> Mapping[str, str]:
    """Labels stored beside the machine: enough to restore the row if the database is lost."""
    kept = {field.column: getattr(sandbox, field.name) for field in _LABELS}
    kept["git_url"] = sandbox.git_url and without_credentials(sandbox.git_url)
    return {_LABEL: json.dumps(kept)}


def from_labels(labels: Mapping[str, str], **known: Any) -> SandboxRow:
    """The row, with what is ``known`` beside the labels. Raises KeyError, TypeError or ValueError for labels that are
    none of a sandbox."""
    kept = json.loads(labels[_LABEL])
    return SandboxRow(
        **{field.name: field.read(kept[field.column]) for field in _LABELS if field.column in kept} | known
    )
