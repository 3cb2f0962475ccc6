"""Values that an installation creates once and keeps."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.tables import installation
from paddock.store.upserts import insert_for


async def once(connection: AsyncConnection, name: str, value: str) -> str:
    """The value stored under this name; ``value`` is stored if there is none."""
    statement = insert_for(connection, installation).values(name=name, value=value)
    await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
    query = select(installation.c.value).where(installation.c.name == name)
    return str((await connection.execute(query)).scalar_one())
