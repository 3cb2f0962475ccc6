"""Which server processes are alive, according to their heartbeats, and on which nodes.

A node is a group of machines on which one server, or several with the same home, can act. Its row outlives its servers,
so that a sandbox's location is always known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, delete, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.records import Node
from paddock.store.statements import Upsert, replacing
from paddock.store.tables import nodes, notes, servers


def _beat(insert: Any) -> Any:
    return insert.on_conflict_do_update(
        index_elements=["server_id"], set_={"heartbeat_at": insert.excluded["heartbeat_at"]}
    )


_BEAT = Upsert(servers, _beat)
_BEAT_NODE = replacing(nodes, "node_id")
_NOTE = replacing(notes, "server_id")


async def beat(connection: AsyncConnection, server_id: str, now: float) -> None:
    values = {"server_id": server_id, "started_at": now, "heartbeat_at": now}
    await connection.execute(_BEAT.on(connection), values)


async def want(connection: AsyncConnection, server_id: str, pool: Any) -> None:
    """Publish this server's warm-pool targets; None if it has none any more."""
    statement = update(servers).where(servers.c.server_id == server_id).values(pool=null() if pool is None else pool)
    await connection.execute(statement)


def lives(now: float, ttl: float) -> ColumnElement[bool]:
    """Whether the last heartbeat is at most ``ttl`` seconds old. One in the future does not count: it was written
    before the clock was set back, and would keep a dead server's leases alive for that long."""
    return servers.c.heartbeat_at.between(now - ttl, now + ttl)


async def wanted_by_others(connection: AsyncConnection, server_id: str, now: float, ttl: float) -> list[Any]:
    """The targets that other living servers have published."""
    query = select(servers.c.pool).where(servers.c.server_id != server_id, lives(now, ttl), servers.c.pool.is_not(None))
    return [pool for pool in (await connection.execute(query)).scalars() if pool is not None]


async def alive(connection: AsyncConnection, server_id: str, now: float, ttl: float) -> bool:
    query = select(servers.c.server_id).where(servers.c.server_id == server_id, lives(now, ttl))
    return (await connection.execute(query)).first() is not None


async def others_alive(connection: AsyncConnection, server_id: str, now: float, ttl: float) -> bool:
    query = select(servers.c.server_id).where(servers.c.server_id != server_id, lives(now, ttl))
    return (await connection.execute(query.limit(1))).first() is not None


async def leave(connection: AsyncConnection, server_id: str) -> None:
    await connection.execute(delete(servers).where(servers.c.server_id == server_id))


async def beat_nodes(connection: AsyncConnection, seen: Collection[Node]) -> None:
    for node in seen:
        await connection.execute(_BEAT_NODE.on(connection), asdict(node))


async def leave_nodes(connection: AsyncConnection, server_id: str) -> None:
    """Clear the heartbeat. Another server with the same home sets it again at its next one."""
    await connection.execute(update(nodes).where(nodes.c.server_id == server_id).values(seen_at=0.0))


async def all_nodes(connection: AsyncConnection) -> list[Node]:
    return [Node(**row) for row in (await connection.execute(select(nodes))).mappings()]


async def forget_others(connection: AsyncConnection, server_id: str) -> None:
    """Remove all other servers: a database with one server at a time has no other that is alive."""
    await connection.execute(delete(servers).where(servers.c.server_id != server_id))


async def forget_stale(connection: AsyncConnection, before: float) -> None:
    await connection.execute(delete(servers).where(servers.c.heartbeat_at < before))


async def noted(connection: AsyncConnection, server_id: str) -> int:
    """The number of this server's last note that is in the database."""
    query = select(notes.c.number).where(notes.c.server_id == server_id)
    return int((await connection.execute(query)).scalar_one_or_none() or 0)


async def note(connection: AsyncConnection, server_id: str, number: int) -> None:
    """Record that with this transaction everything up to this note is in the database."""
    await connection.execute(_NOTE.on(connection), {"server_id": server_id, "number": number})


async def forget_notes(connection: AsyncConnection, server_ids: Sequence[str]) -> None:
    await connection.execute(delete(notes).where(notes.c.server_id.in_(server_ids)))
