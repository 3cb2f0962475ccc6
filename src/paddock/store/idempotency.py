"""Which request used an idempotency key, what it started, and whether that was counted."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.store.records import KeyClaim
from paddock.store.statements import keeping, prepared
from paddock.store.tables import counted_commands, idempotency

_COUNT = keeping(counted_commands, "process_id")
_CLAIM = keeping(idempotency, "owner_id", "key")
_FIND = prepared(
    select(idempotency).where(idempotency.c.owner_id == bindparam("owner"), idempotency.c.key == bindparam("used"))
)

MAX_COUNTED = 1_000_000
"""Number of commands, the latest, whose count is remembered."""


async def claim(connection: AsyncConnection, new: KeyClaim) -> KeyClaim:
    """The claim that holds the key: the new one, or an earlier one."""
    await connection.execute(_CLAIM.on(connection), asdict(new))
    held = await connection.execute(_FIND, {"owner": new.owner_id, "used": new.key})
    return KeyClaim(**held.mappings().one())


async def keep_answer(connection: AsyncConnection, new: KeyClaim) -> None:
    """Store the response to a request, whether or not it got as far as claiming its key."""
    held = await claim(connection, new)
    if held.fingerprint == new.fingerprint and held.answer is None:
        mine = (idempotency.c.owner_id == new.owner_id, idempotency.c.key == new.key)
        await connection.execute(update(idempotency).where(*mine).values(answer=new.answer))


async def find(connection: AsyncConnection, owner_id: str, key: str) -> KeyClaim | None:
    row = (await connection.execute(_FIND, {"owner": owner_id, "used": key})).mappings().first()
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
