"""Users and their API keys, tickets, and the values that an installation creates once. Only digests of keys and tickets
are stored."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.models import Role
from paddock.store.records import ApiKey, UserRow
from paddock.store.statements import keeping, prepared
from paddock.store.tables import api_keys, installation, tickets, users

_KEY_COLUMNS = [api_keys.c[name] for name in ("key_id", "name", "user_id", "prefix", "created_at", "last_used_at")]

_USER_FIELDS = tuple(field.name for field in fields(UserRow))
_USER_COLUMNS = [users.c[name] for name in _USER_FIELDS if name not in ("user_id", "created_at")]

_USER = prepared(select(users).where(users.c.user_id == bindparam("id")))
_USER_AND_LOCK = _USER.with_for_update()
_ADD_TICKET = prepared(insert(tickets))
_TAKE_TICKET = prepared(delete(tickets).where(tickets.c.digest == bindparam("id")).returning(tickets))
_KEEP_VALUE = keeping(installation, "name")


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


async def add_ticket(
    connection: AsyncConnection, *, digest: str, sandbox_id: str, user_id: str, port: int | None, expires_at: float
) -> None:
    values = {"digest": digest, "sandbox_id": sandbox_id, "user_id": user_id, "port": port, "expires_at": expires_at}
    await connection.execute(_ADD_TICKET, values)


async def take_ticket(connection: AsyncConnection, digest: str) -> RowMapping | None:
    """Delete the ticket and return its row; of several concurrent callers only one gets it."""
    return (await connection.execute(_TAKE_TICKET, {"id": digest})).mappings().first()


async def forget_tickets(connection: AsyncConnection, before: float) -> None:
    await connection.execute(delete(tickets).where(tickets.c.expires_at < before))


async def installation_value(connection: AsyncConnection, name: str, value: str) -> str:
    """The value stored under this name; ``value`` is stored if there is none."""
    await connection.execute(_KEEP_VALUE.on(connection), {"name": name, "value": value})
    query = select(installation.c.value).where(installation.c.name == name)
    return str((await connection.execute(query)).scalar_one())
