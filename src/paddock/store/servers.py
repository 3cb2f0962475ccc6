"""Which server processes are alive, told by their heartbeats; and the name of this installation."""

from __future__ import annotations

import secrets

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.tables import installation, servers


async def beat(connection: AsyncConnection, server_id: str, now: float) -> None:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(servers).values(server_id=server_id, started_at=now, heartbeat_at=now)
    await connection.execute(statement.on_conflict_do_update(index_elements=["server_id"], set_={"heartbeat_at": now}))


async def alive(connection: AsyncConnection, server_id: str, since: float) -> bool:
    query = select(servers.c.server_id).where(servers.c.server_id == server_id, servers.c.heartbeat_at >= since)
    return (await connection.execute(query)).first() is not None


async def leave(connection: AsyncConnection, server_id: str) -> None:
    await connection.execute(delete(servers).where(servers.c.server_id == server_id))


async def forget_others(connection: AsyncConnection, server_id: str) -> None:
    """For a database that only one server uses at a time: whoever was there before is dead."""
    await connection.execute(delete(servers).where(servers.c.server_id != server_id))


async def forget_stale(connection: AsyncConnection, before: float) -> None:
    await connection.execute(delete(servers).where(servers.c.heartbeat_at < before))


async def installation_id(connection: AsyncConnection) -> str:
    """Made once; marks what this installation owns at a provider that others use too."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(installation).values(name="id", value=secrets.token_hex(8))
    await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
    query = select(installation.c.value).where(installation.c.name == "id")
    return str((await connection.execute(query)).scalar_one())
