"""Which request already used an idempotency key, what it started, and whether that was counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.tables import counted_commands, idempotency
from paddock.store.upserts import Upsert, insert_for

_COUNT = Upsert(counted_commands, lambda insert: insert.on_conflict_do_nothing(index_elements=["process_id"]))

MAX_COUNTED = 1_000_000
"""Commands of which it is remembered that they were counted, the latest."""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    owner_id: str
    key: str
    fingerprint: str
    sandbox_id: str
    process_id: str | None
    created_at: float
    answer: Mapping[str, Any] | None = None
    """Status and body to give again, where what was made does not tell: an answer of failure."""


async def claim(connection: AsyncConnection, new: KeyClaim) -> KeyClaim:
    """The claim that holds the key: the new one, or the one that came first."""
    statement = insert_for(connection, idempotency).values(
        owner_id=new.owner_id,
        key=new.key,
        fingerprint=new.fingerprint,
        sandbox_id=new.sandbox_id,
        process_id=new.process_id,
        created_at=new.created_at,
        answer=new.answer,
    )
    await connection.execute(statement.on_conflict_do_nothing(index_elements=["owner_id", "key"]))
    query = select(idempotency).where(idempotency.c.owner_id == new.owner_id, idempotency.c.key == new.key)
    return KeyClaim(**(await connection.execute(query)).mappings().one())


async def keep_answer(connection: AsyncConnection, new: KeyClaim) -> None:
    """Remember what the request was answered, whether or not it had come as far as to claim its key."""
    held = await claim(connection, new)
    if held.fingerprint == new.fingerprint and held.answer is None:
        mine = (idempotency.c.owner_id == new.owner_id, idempotency.c.key == new.key)
        await connection.execute(update(idempotency).where(*mine).values(answer=new.answer))


async def find(connection: AsyncConnection, owner_id: str, key: str) -> KeyClaim | None:
    query = select(idempotency).where(idempotency.c.owner_id == owner_id, idempotency.c.key == key)
    row = (await connection.execute(query)).mappings().first()
    return KeyClaim(**row) if row else None


async def release(connection: AsyncConnection, sandbox_id: str) -> None:
    """The create of this sandbox was refused for now: the same key may make another."""
    made = (idempotency.c.sandbox_id == sandbox_id, idempotency.c.process_id.is_(None))
    await connection.execute(delete(idempotency).where(*made))


async def first_count(connection: AsyncConnection, process_id: str, at: float) -> bool:
    """Whether the command of this process is counted now for the first time. True once, in one transaction."""
    values = {"process_id": process_id, "counted_at": at}
    return bool((await connection.execute(_COUNT.on(connection), values)).rowcount)


async def forget(connection: AsyncConnection, before: float, kept: int) -> None:
    """Those from before this moment, and of each owner all but the latest so many."""
    await connection.execute(delete(idempotency).where(idempotency.c.created_at < before))
    await connection.execute(delete(counted_commands).where(counted_commands.c.counted_at < before))
    newest = select(counted_commands.c.counted_at).order_by(counted_commands.c.counted_at.desc())
    oldest = (await connection.execute(newest.offset(MAX_COUNTED - 1).limit(1))).scalar()
    if oldest is not None:
        await connection.execute(delete(counted_commands).where(counted_commands.c.counted_at < oldest))
    count = func.count()
    crowded = select(idempotency.c.owner_id).group_by(idempotency.c.owner_id).having(count > kept)
    for owner_id in (await connection.execute(crowded)).scalars().all():
        mine = idempotency.c.owner_id == owner_id
        latest = select(idempotency.c.created_at).where(mine).order_by(idempotency.c.created_at.desc())
        oldest_kept = (await connection.execute(latest.offset(kept - 1).limit(1))).scalar_one()
        await connection.execute(delete(idempotency).where(mine, idempotency.c.created_at < oldest_kept))
