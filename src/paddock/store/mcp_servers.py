"""MCP servers that users registered for a sandbox, and the tools of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.database import wipes
from paddock.store.records import McpServerRow
from paddock.store.statements import prepared, replacing
from paddock.store.tables import mcp_servers

_PUT = replacing(mcp_servers, "sandbox_id", "name")
_ADD = prepared(insert(mcp_servers))
_CLEAR = prepared(delete(mcp_servers).where(mcp_servers.c.sandbox_id == bindparam("id")))


async def add(connection: AsyncConnection, sandbox_id: str, definitions: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the servers of a sandbox that is created in the same transaction."""
    if definitions:
        rows = [asdict(McpServerRow(sandbox_id, name, definition)) for name, definition in definitions.items()]
        await connection.execute(_ADD, rows)


async def put(connection: AsyncConnection, server: McpServerRow) -> None:
    """Add or replace the server of this name."""
    wipes(connection, mcp_servers.name)
    await connection.execute(_PUT.on(connection), asdict(server))


async def of(connection: AsyncConnection, sandbox_id: str) -> list[McpServerRow]:
    query = select(mcp_servers).where(mcp_servers.c.sandbox_id == sandbox_id).order_by(mcp_servers.c.name)
    return [McpServerRow(**row) for row in (await connection.execute(query)).mappings()]


async def learn(connection: AsyncConnection, sandbox_id: str, name: str, tools: Sequence[Mapping[str, Any]]) -> None:
    where = (mcp_servers.c.sandbox_id == sandbox_id, mcp_servers.c.name == name)
    await connection.execute(update(mcp_servers).where(*where).values(tools=list(tools)))


async def remove(connection: AsyncConnection, sandbox_id: str, names: Collection[str]) -> None:
    wipes(connection, mcp_servers.name)
    where = (mcp_servers.c.sandbox_id == sandbox_id, mcp_servers.c.name.in_(names))
    await connection.execute(delete(mcp_servers).where(*where))


async def clear(connection: AsyncConnection, sandbox_id: str) -> None:
    wipes(connection, mcp_servers.name)
    await connection.execute(_CLEAR, {"id": sandbox_id})


async def forget(connection: AsyncConnection, sandbox_ids: Collection[str]) -> None:
    if sandbox_ids:
        wipes(connection, mcp_servers.name)
        await connection.execute(delete(mcp_servers).where(mcp_servers.c.sandbox_id.in_(sandbox_ids)))
