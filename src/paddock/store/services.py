"""Services that users registered: what to start when a port of a sandbox is first used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from sqlalchemy import Text, bindparam, cast, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.database import wipes
from paddock.store.records import ServiceRow
from paddock.store.statements import prepared, replacing
from paddock.store.tables import services

_PUT = replacing(services, "sandbox_id", "name")
_CLEAR = prepared(delete(services).where(services.c.sandbox_id == bindparam("id")))


async def put(connection: AsyncConnection, service: ServiceRow) -> None:
    """Add or replace the service of this name. Raises ``IntegrityError`` if another service has the port."""
    wipes(connection, services.name)
    await connection.execute(_PUT.on(connection), asdict(service))


async def of(connection: AsyncConnection, sandbox_id: str) -> list[ServiceRow]:
    query = select(services).where(services.c.sandbox_id == sandbox_id).order_by(services.c.name)
    return [ServiceRow(**row) for row in (await connection.execute(query)).mappings()]


async def count(connection: AsyncConnection, sandbox_id: str) -> int:
    query = select(func.count()).select_from(services).where(services.c.sandbox_id == sandbox_id)
    return int((await connection.execute(query)).scalar_one())


async def size(connection: AsyncConnection, sandbox_id: str) -> int:
    """Total length of the commands and variables in characters."""
    each = func.length(services.c.command) + func.length(cast(services.c.env, Text))
    query = select(func.coalesce(func.sum(each), 0)).where(services.c.sandbox_id == sandbox_id)
    return int((await connection.execute(query)).scalar_one())


async def named(connection: AsyncConnection, sandbox_id: str, name: str) -> ServiceRow | None:
    return await _one(connection, services.c.sandbox_id == sandbox_id, services.c.name == name)


async def at_port(connection: AsyncConnection, sandbox_id: str, port: int) -> ServiceRow | None:
    return await _one(connection, services.c.sandbox_id == sandbox_id, services.c.port == port)


async def _one(connection: AsyncConnection, *conditions: Any) -> ServiceRow | None:
    row = (await connection.execute(select(services).where(*conditions))).mappings().first()
    return ServiceRow(**row) if row else None


async def remove(connection: AsyncConnection, sandbox_id: str, name: str) -> None:
    wipes(connection, services.name)
    await connection.execute(delete(services).where(services.c.sandbox_id == sandbox_id, services.c.name == name))


async def clear(connection: AsyncConnection, sandbox_id: str) -> None:
    wipes(connection, services.name)
    await connection.execute(_CLEAR, {"id": sandbox_id})


async def forget(connection: AsyncConnection, sandbox_ids: Collection[str]) -> None:
    if sandbox_ids:
        wipes(connection, services.name)
        await connection.execute(delete(services).where(services.c.sandbox_id.in_(sandbox_ids)))
