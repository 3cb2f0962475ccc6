"""Names: safe in host names and paths, or refused."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from paddock.ids import hash_api_key, is_sandbox_id, key_prefix, new_api_key, new_sandbox_id, new_sandbox_key
from paddock.models import CreateSandbox


@pytest.mark.parametrize("user_id", ["alice", "a", "user-1", "user_1", "Team42", "a" * 63])
def test_names_that_are_safe_are_taken_as_they_are(user_id: str) -> None:
    assert CreateSandbox(user_id=user_id).user_id == user_id
    assert is_sandbox_id(new_sandbox_id(user_id))


@pytest.mark.parametrize(
    "user_id",
    ["", " ", "a b", "../etc", "a/b", "a.b", "-a", "a-", "_a", "ü", "a\n", "a\0", "a@b.c", "a" * 64, "a%2e", "💥"],
)
def test_names_that_are_not_safe_are_refused_not_mangled(user_id: str) -> None:
    with pytest.raises(ValidationError):
        CreateSandbox(user_id=user_id)


def test_keys_have_the_form_that_every_e2b_sdk_accepts() -> None:
    key = new_api_key()
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", key)
    assert key.startswith(key_prefix(key)) and len(key_prefix(key)) < 12
    assert key not in hash_api_key(key)
    assert re.fullmatch(r"[a-z][a-z0-9]{20}", new_sandbox_key())
