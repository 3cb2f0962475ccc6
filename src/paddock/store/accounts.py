"""Users and their API keys. Only the digest of a key is stored."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.models import Role
from paddock.store.inline_sqlite import prepared
from paddock.store.records import ApiKey, UserRow
from paddock.store.tables import api_keys, users

_KEY_COLUMNS = [api_keys.c[name] for name in ("key_id", "name", "user_id", "prefix", "created_at", "last_used_at")]

_USER_FIELDS = tuple(field.name for field in fields(UserRow))
_USER_COLUMNS = [users.c[name] for name in _USER_FIELDS if name not in ("user_id", "created_at")]

_USER = prepared(select(users).where(users.c.user_id == bindparam("id")))
_USER_AND_LOCK = _USER.with_for_update()


async def user(connection: AsyncConnection, user_id: str, *, lock: bool = False) -> UserRow | None:
    query = _USER_AND_LOCK if lock and connection.dialect.name != "sqlite" else _USER
    row = (await connection.execute(query, {"id": user_id})).mappings().first()
    return _user(row) if row else None


async def add_user(connection: AsyncConnection, new: UserRow) -> None:
    await connection.execute(insert(users).values(**asdict(new)))


async def change_user(connection: AsyncConnection, user_id: str, values: dict[str, Any]) -> None:
    if values:
        await connection.execute(update(users).where(users.c.user_id == user_id).values(**values))


async def all_users(connection: AsyncConnection) -> list[UserRow]:
    query = select(users).order_by(users.c.user_id)
    return [_user(row) for row in (await connection.execute(query)).mappings()]


async def add_key(
    connection: AsyncConnection, *, digest: str, name: str, user_id: str, prefix: str, created_at: float
) -> ApiKey:
    statement = (
        insert(api_keys)
        .values(hash=digest, name=name, user_id=user_id, prefix=prefix, created_at=created_at)
        .returning(*_KEY_COLUMNS)
    )
    return ApiKey(**(await connection.execute(statement)).mappings().one())


async def by_digest(connection: AsyncConnection, digest: str) -> tuple[ApiKey, UserRow] | None:
    query = (
        select(*_KEY_COLUMNS, *_USER_COLUMNS, users.c.created_at.label("user_created_at"))
        .join(users, users.c.user_id == api_keys.c.user_id)
        .where(api_keys.c.hash == digest)
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    key = ApiKey(**{column.name: row[column.name] for column in _KEY_COLUMNS})
    return key, _user({**row, "created_at": row["user_created_at"]})


async def keys(connection: AsyncConnection, user_id: str | None) -> list[ApiKey]:
    query = select(*_KEY_COLUMNS).order_by(api_keys.c.key_id)
    if user_id is not None:
        query = query.where(api_keys.c.user_id == user_id)
    return [ApiKey(**row) for row in (await connection.execute(query)).mappings()]


async def remove_key(connection: AsyncConnection, key_id: int, user_id: str | None) -> bool:
    statement = delete(api_keys).where(api_keys.c.key_id == key_id)
    if user_id is not None:
        statement = statement.where(api_keys.c.user_id == user_id)
    return (await connection.execute(statement)).rowcount == 1


async def note_use(connection: AsyncConnection, key_id: int, at: float) -> None:
    await connection.execute(update(api_keys).where(api_keys.c.key_id == key_id).values(last_used_at=at))


def _user(row: RowMapping | dict[str, Any]) -> UserRow:
    values = {name: row[name] for name in _USER_FIELDS}
    return UserRow(**{**values, "role": Role(row["role"]), "disabled": bool(row["disabled"])})
