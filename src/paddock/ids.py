"""Names and secrets: what they look like and how they are made."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

USER_ID_PATTERN: Final = r"^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"
SANDBOX_ID_PATTERN: Final = r"^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?_[0-9a-f]{8}$"
PROCESS_ID_PATTERN: Final = r"^p_[0-9a-f]{16}$"

_SANDBOX_ID = re.compile(SANDBOX_ID_PATTERN, re.ASCII)
_SANDBOX_KEY = re.compile(r"[a-z0-9]{1,63}", re.ASCII)
_LOWER_ALNUM: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_KEY_LETTERS: Final = 20
_KEYS: Final = len(_LOWER_ALNUM) ** _KEY_LETTERS
_KEY_PREFIX: Final = "e2b_"
_API_KEY = re.compile(r"e2b_[0-9a-f]{40}", re.ASCII)


def new_sandbox_id(user_id: str) -> str:
    return f"{user_id}_{secrets.token_hex(4)}"


def is_sandbox_id(text: str) -> bool:
    return len(text) <= 80 and _SANDBOX_ID.fullmatch(text) is not None


def new_sandbox_key() -> str:
    """The DNS-safe second name, in the form that E2B's clients expect: a letter and 20 more. 103 bits: unguessable."""
    number = secrets.randbelow(_KEYS)
    letters = []
    for _ in range(_KEY_LETTERS):
        number, index = divmod(number, len(_LOWER_ALNUM))
        letters.append(_LOWER_ALNUM[index])
    return "i" + "".join(letters)


def is_sandbox_key(text: str) -> bool:
    return _SANDBOX_KEY.fullmatch(text) is not None


def new_process_id() -> str:
    return "p_" + secrets.token_hex(8)


def first_process_id(sandbox_id: str) -> str:
    """Of the command that a sandbox is made with: always the same one, however often the create is asked for."""
    return "p_" + hashlib.sha256(f"first command\n{sandbox_id}".encode()).hexdigest()[:16]


def new_server_id() -> str:
    return "s_" + secrets.token_hex(8)


def new_request_id() -> str:
    return "r_" + secrets.token_hex(8)


def new_api_key() -> str:
    """``e2b_`` and 40 hex digits: the one form that every version of the E2B SDK accepts, 160 bits."""
    return _KEY_PREFIX + secrets.token_hex(20)


def is_api_key(text: str) -> bool:
    """Whether it looks like one; whether it is one, the accounts know."""
    return _API_KEY.fullmatch(text) is not None


def key_prefix(api_key: str) -> str:
    """What may be shown of a key afterwards, to tell keys apart."""
    return api_key[: len(_KEY_PREFIX) + 6]


def hash_api_key(api_key: str) -> str:
    """A plain digest is enough: the key itself has 160 random bits, so there is nothing to guess."""
    return hashlib.sha256(api_key.encode()).hexdigest()
