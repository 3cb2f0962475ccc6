"""API keys, users, roles and quotas."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from paddock.api.auth import Calling
from paddock.api.openapi import failures, guarded_router
from paddock.api.shapes import key_fields, user_answer
from paddock.models import (
    ChangeUser,
    CreateKey,
    CreateUser,
    KeyAnswer,
    KeyList,
    NewKeyAnswer,
    Success,
    UserAnswer,
    UserId,
    UserList,
)

router = guarded_router("accounts", responses=failures(404, 409))

UserIdHere = Annotated[UserId, Path()]


@router.post("/keys")
async def create_key(body: CreateKey, caller: Calling) -> NewKeyAnswer:
    """Create an API key. The secret is returned only once. Members create keys for themselves, admins for any user."""
    key, secret = await caller.context.accounts.create_key(caller.who, body)
    return NewKeyAnswer(key=secret, **key_fields(key))


@router.get("/keys")
async def list_keys(caller: Calling) -> KeyList:
    """List your own keys; as an admin, all keys."""
    keys = await caller.context.accounts.list_keys(caller.who)
    return KeyList(keys=[KeyAnswer(**key_fields(key)) for key in keys])


@router.delete("/keys/{key_id}")
async def revoke_key(key_id: Annotated[int, Path(ge=1, le=2**53)], caller: Calling) -> Success:
    await caller.context.accounts.revoke_key(caller.who, key_id)
    return Success(message="The key is revoked.")


@router.get("/me")
async def me(caller: Calling) -> UserAnswer:
    """The user that this key belongs to."""
    accounts = caller.context.accounts
    user = await accounts.get_user(caller.who, caller.who.user_id)
    return user_answer(user, accounts.quota_of(user))


@router.post("/users")
async def create_user(body: CreateUser, caller: Calling) -> UserAnswer:
    accounts = caller.context.accounts
    user = await accounts.create_user(caller.who, body)
    return user_answer(user, accounts.quota_of(user))


@router.get("/users")
async def list_users(caller: Calling) -> UserList:
    accounts = caller.context.accounts
    users = await accounts.list_users(caller.who)
    return UserList(users=[user_answer(user, accounts.quota_of(user)) for user in users])


@router.get("/users/{user_id}")
async def get_user(user_id: UserIdHere, caller: Calling) -> UserAnswer:
    accounts = caller.context.accounts
    user = await accounts.get_user(caller.who, user_id)
    return user_answer(user, accounts.quota_of(user))


@router.patch("/users/{user_id}")
async def change_user(body: ChangeUser, user_id: UserIdHere, caller: Calling) -> UserAnswer:
    """Change the role or the quota, or disable the user. Omitted fields are not changed."""
    accounts = caller.context.accounts
    user = await accounts.change_user(caller.who, user_id, body)
    return user_answer(user, accounts.quota_of(user))
