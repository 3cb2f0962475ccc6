"""Tickets that were issued and not redeemed yet."""

from __future__ import annotations

from sqlalchemy import delete, insert
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.tables import tickets


async def add(
    connection: AsyncConnection, *, digest: str, sandbox_id: str, user_id: str, port: int | None, expires_at: float
) -> None:
    statement = insert(tickets).values(
        digest=digest, sandbox_id=sandbox_id, user_id=user_id, port=port, expires_at=expires_at
    )
    await connection.execute(statement)


async def take(connection: AsyncConnection, digest: str) -> RowMapping | None:
    """Delete the ticket and return its row; of several concurrent callers only one gets it."""
    statement = delete(tickets).where(tickets.c.digest == digest).returning(tickets)
    return (await connection.execute(statement)).mappings().first()


async def forget(connection: AsyncConnection, before: float) -> None:
    await connection.execute(delete(tickets).where(tickets.c.expires_at < before))
