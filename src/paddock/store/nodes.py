"""Nodes: groups of machines on which one server, or several with the same home, can act. Rows outlive their servers, so
that a sandbox's location is always known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.tables import nodes
from paddock.store.upserts import insert_for


@dataclass(frozen=True, slots=True)
class Node:
    node_id: str
    name: str
    """Host name of the machine whose server was there last."""
    url: str | None
    """URL at which other servers reach that server; None if its operator has not configured one."""
    boot_id: str
    """Boot id of that machine. Another machine with the same node uses the same directory, or a copy of it."""
    server_id: str
    seen_at: float
    """Time of the last heartbeat; 0 after an orderly stop."""


async def beat(connection: AsyncConnection, seen: Collection[Node]) -> None:
    for node in seen:
        values = {name: getattr(node, name) for name in Node.__slots__}
        statement = insert_for(connection, nodes).values(values)
        changed = {name: value for name, value in values.items() if name != "node_id"}
        await connection.execute(statement.on_conflict_do_update(index_elements=["node_id"], set_=changed))


async def leave(connection: AsyncConnection, server_id: str) -> None:
    """Clear the heartbeat. Another server with the same home sets it again at its next one."""
    await connection.execute(update(nodes).where(nodes.c.server_id == server_id).values(seen_at=0.0))


async def every(connection: AsyncConnection) -> list[Node]:
    columns = [nodes.c[name] for name in Node.__slots__]
    return [Node(**row) for row in (await connection.execute(select(*columns))).mappings()]
