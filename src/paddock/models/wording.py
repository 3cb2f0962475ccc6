"""What is said about text that does not have its form: a sentence with an example, where pydantic shows the regular
expression."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.ids import USER_ID_PATTERN

_SENTENCES = {
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$": "must be the name of a template or image, for example host or python:3.12-slim",
    r"^[a-z0-9_-]+$": "must be the name of a provider, for example local or docker",
    r"^[a-z_][a-z0-9_-]{0,31}$": "must be the name of a user in the sandbox, for example user or root",
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$": "may have small letters, digits and `-`, for example web-1",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,47}$": "may have up to 48 letters, digits, `_`, `.` and `-`, for example my-server",
    r"^/": "must begin with a slash, for example /health",
    r"^\d{4}-\d{2}-\d{2}$": "must be a day, for example 2030-01-31",
    r"^[0-7]{3,4}$": "must be an octal mode, for example 0644",
    r"^[\x20-\x7e]{1,255}$": "must have 1 to 255 printable ASCII characters, for example order-1234",
    r"^[A-Za-z0-9_+#-]{1,32}$": "must be the name of a language, for example python",
}
_MAX_SUGGESTION = 63
_MAX_READ = 256


def wording(problem: Mapping[str, Any]) -> str:
    """The text of one of pydantic's errors, without what only its own programmers would know."""
    text = str(problem["msg"]).removeprefix("Value error, ")
    if problem.get("type") != "string_pattern_mismatch":
        return text
    pattern = problem.get("ctx", {}).get("pattern", "")
    if pattern == USER_ID_PATTERN:
        return (
            "may have up to 63 letters, digits, `-` and `_`, and begins and ends with a letter or digit, for example "
            f"{_user_id_like(problem.get('input'))}"
        )
    return _SENTENCES.get(pattern, text)


def _user_id_like(given: Any) -> str:
    """``alice@example.com`` as ``alice-example-com``."""
    text = given[:_MAX_READ] if isinstance(given, str) else ""
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-_")[:_MAX_SUGGESTION].strip("-_") or "alice"
