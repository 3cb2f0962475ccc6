"""Keys and users: who may do what, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from paddock.client.answers import Done, Key, NewKey, User
from paddock.client.call import Call, answer, given, listed
from paddock.client.retry import Repeat


def create_key(name: str, *, user_id: str | None = None, role: str | None = None) -> Call[NewKey]:
    """Make a key; it is shown this once."""
    return Call(
        method="POST",
        path="/keys",
        json=given(name=name, user_id=user_id, role=role),
        read=answer(NewKey),
        repeat=Repeat.UNSENT,
    )


def list_keys() -> Call[list[Key]]:
    return Call(method="GET", path="/keys", read=listed(Key, "keys"))


def revoke_key(key_id: int) -> Call[Done]:
    return Call(method="DELETE", path=f"/keys/{key_id}", read=answer(Done))


def me() -> Call[User]:
    """Whom this key acts for."""
    return Call(method="GET", path="/me", read=answer(User))


def create_user(
    user_id: str, *, role: str | None = None, quota: Mapping[str, float | None] | None = None
) -> Call[User]:
    return Call(
        method="POST",
        path="/users",
        json=given(user_id=user_id, role=role, quota=quota),
        read=answer(User),
        repeat=Repeat.UNSENT,
    )


def list_users() -> Call[list[User]]:
    return Call(method="GET", path="/users", read=listed(User, "users"))


def get_user(user_id: str) -> Call[User]:
    return Call(method="GET", path=f"/users/{quote(user_id, safe='')}", read=answer(User))


def change_user(
    user_id: str,
    *,
    role: str | None = None,
    quota: Mapping[str, float | None] | None = None,
    disabled: bool | None = None,
) -> Call[User]:
    """Change what is given; the rest stays."""
    return Call(
        method="PATCH",
        path=f"/users/{quote(user_id, safe='')}",
        json=given(role=role, quota=quota, disabled=disabled),
        read=answer(User),
    )
