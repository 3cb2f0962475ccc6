"""API keys, users, roles and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from paddock.client.answers import Done, Key, NewKey, User
from paddock.client.call import ApiCall, answer, given, listed
from paddock.client.retry import Repeat


def create_key(name: str, *, user_id: str | None = None, role: str | None = None) -> ApiCall[NewKey]:
    """Create a key. The secret is returned only by this call."""
    return ApiCall(
        method="POST",
        path="/keys",
        json=given(name=name, user_id=user_id, role=role),
        read=answer(NewKey),
        repeat=Repeat.UNSENT,
    )


def list_keys() -> ApiCall[list[Key]]:
    return ApiCall(method="GET", path="/keys", read=listed(Key, "keys"))


def revoke_key(key_id: int) -> ApiCall[Done]:
    return ApiCall(method="DELETE", path=f"/keys/{key_id}", read=answer(Done))


def me() -> ApiCall[User]:
    """The user that this key belongs to."""
    return ApiCall(method="GET", path="/me", read=answer(User))


def create_user(
    user_id: str, *, role: str | None = None, quota: Mapping[str, float | None] | None = None
) -> ApiCall[User]:
    return ApiCall(
        method="POST",
        path="/users",
        json=given(user_id=user_id, role=role, quota=quota),
        read=answer(User),
        repeat=Repeat.UNSENT,
    )


def list_users() -> ApiCall[list[User]]:
    return ApiCall(method="GET", path="/users", read=listed(User, "users"))


def get_user(user_id: str) -> ApiCall[User]:
    return ApiCall(method="GET", path=f"/users/{quote(user_id, safe='')}", read=answer(User))


def change_user(
    user_id: str,
    *,
    role: str | None = None,
    quota: Mapping[str, float | None] | None = None,
    disabled: bool | None = None,
) -> ApiCall[User]:
    """Change only the given fields."""
    return ApiCall(
        method="PATCH",
        path=f"/users/{quote(user_id, safe='')}",
        json=given(role=role, quota=quota, disabled=disabled),
        read=answer(User),
    )
