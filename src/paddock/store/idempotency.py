"""Which request used an idempotency key, what it started, and whether that was counted."""

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
"""Number of commands, the latest, whose count is remembered."""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    owner_id: str
    key: str
    fingerprint: str
    sandbox_id: str
    process_id: str | None
    created_at: float
    answer: Mapping[str, Any] | None = None
    """Status and body to repeat, if what was created does not tell: an error response."""


async def claim(connection: AsyncConnection, new: KeyClaim) -> KeyClaim:
    """The claim that holds the key: the new one, or an earlier one."""
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
    """Store the response to a request, whether or not it got as far as claiming its key."""
    held = await claim(connection, new)
    if held.fingerprint == new.fingerprint and held.answer is None:
        mine = (idempotency.c.owner_id == new.owner_id, idempotency.c.key == new.key)
        await connection.execute(update(idempotency).where(*mine).values(answer=new.answer))


async def find(connection: AsyncConnection, owner_id: str, key: str) -> KeyClaim | None:
    query = select(idempotency).where(idempotency.c.owner_id == owner_id, idempotency.c.key == key)
    row = (await connection.execute(query)).mappings().first()
    return KeyClaim(**row) if row else None


async def release(connection: AsyncConnection, sandbox_id: str) -> None:
    """The create of this sandbox was refused temporarily: the same key may be used again."""
    made = (idempotency.c.sandbox_id == sandbox_id, idempotency.c.process_id.is_(None))
    await connection.execute(delete(idempotency).where(*made))


async def first_count(connection: AsyncConnection, process_id: str, at: float) -> bool:
    """Whether the command of this process is being counted for the first time. True in one transaction only."""
    values = {"process_id": process_id, "counted_at": at}
    return bool((await connection.execute(_COUNT.on(connection), values)).rowcount)


async def forget(connection: AsyncConnection, before: float, kept: int) -> None:
    """Delete claims older than ``before``, and of each owner all but the latest ``kept``."""
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
