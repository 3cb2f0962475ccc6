"""Kinds of values that requests are made of: what is safe, and what is refused with its reason."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from paddock import paths
from paddock.ids import USER_ID_PATTERN

MAX_COMMAND = 128 * 1024 - 1
"""The kernel takes no longer single argument."""
MAX_METADATA = 16 * 1024
MAX_METADATA_DEPTH = 32
MAX_ENV = 64 * 1024
MAX_PATH = 4095
"""The kernel's 4096 count the NUL at the end."""
MAX_WAIT = 3600.0
MAX_HARD_TIMEOUT = 86_400.0

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGNALS = "HUP|INT|QUIT|ABRT|KILL|USR1|USR2|TERM|CONT|STOP|TSTP|WINCH"
BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
# What the checks below say, for readers of the OpenAPI document.
_PLAIN_TEXT = r"^[^\u0000]*$"
_PATH_PART = r"([^/.\u0000][^/\u0000]{0,254}|\.([^/.\u0000][^/\u0000]{0,253})?|\.\.[^/\u0000]{1,253})"
_PLAIN_PATH = f"^{_PATH_PART}?(/{_PATH_PART}?)*$"
GIT_URL = r"^(?:(?:https?|ssh|git|file)://[^\s\u0000]+|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:[A-Za-z0-9_./~-]+)$"


def is_valid_unicode(text: str) -> bool:
    if text.isascii():  # known at once, however long it is
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _valid_unicode(text: str) -> str:
    if not is_valid_unicode(text):
        raise ValueError("must be valid Unicode (it holds a lone surrogate)")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return _valid_unicode(text)


def _one_argument(command: str) -> str:
    if len(_no_nul(command).encode()) > MAX_COMMAND:
        raise ValueError(f"must stay under {MAX_COMMAND} bytes; write a longer script to a file and run that")
    return command


def _whole(value: Any) -> Any:
    """60.0 is the integer 60, as JSON Schema has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not a name for an environment variable")
        _no_nul(value)
    if sum(len(name) + len(value) for name, value in env.items()) > MAX_ENV:
        raise ValueError(f"names and values together must stay under {MAX_ENV} characters")
    return env


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    _check_json(metadata, MAX_METADATA_DEPTH)
    if len(json.dumps(metadata)) > MAX_METADATA:
        raise ValueError(f"must stay under {MAX_METADATA} bytes as JSON; keep larger things in a file")
    return metadata


def _check_json(value: Any, depth: int) -> None:
    """Only what every database and every JSON parser takes."""
    if depth == 0:
        raise ValueError(f"must not be nested deeper than {MAX_METADATA_DEPTH} levels")
    match value:
        case str():
            _no_nul(value)
        case float() if not math.isfinite(value):
            raise ValueError("must hold finite numbers only")
        case dict():
            for name, item in value.items():
                _no_nul(name)
                _check_json(item, depth - 1)
        case list():
            for item in value:
                _check_json(item, depth - 1)


def _sandbox_path(path: str) -> str:
    """Where a path inside a sandbox leads: a relative one begins in the workspace."""
    if not path:
        raise ValueError("must not be empty; /workspace is '.'")
    return _check_path(paths.absolute(path))


def _check_path(path: str) -> str:
    """Absolute and free of ``..``: what a path means must be plain from reading it."""
    _no_nul(path)
    if not path.startswith("/"):
        raise ValueError("must be absolute, for example /srv/project")
    if len(path) > MAX_PATH:
        raise ValueError(f"must stay under {MAX_PATH} characters")
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
    if any(len(part.encode()) > 255 for part in path.split("/")):
        raise ValueError("has a part longer than 255 bytes")
    return path


def _check_sandbox_id(text: str) -> str:
    return _no_nul(text)


SandboxId = Annotated[
    str,
    AfterValidator(_check_sandbox_id),
    Field(
        min_length=1,
        max_length=200,
        description="`{user_id}_{8 hex}`",
        examples=["alice_1f2e3d4c"],
        json_schema_extra={"pattern": _PLAIN_TEXT},
    ),
]
UserId = Annotated[
    str,
    Field(
        pattern=USER_ID_PATTERN,
        max_length=63,
        description="Letters, digits, `-` and `_`; safe in a host name and in a path.",
        examples=["alice"],
    ),
]
SandboxPath = Annotated[
    str,
    AfterValidator(_sandbox_path),
    Field(
        min_length=1,
        max_length=MAX_PATH,
        description="Absolute, or relative to `/workspace` (`~` is `/home/user`), without `..`.",
        examples=["hello.py", "/workspace/hello.py"],
        json_schema_extra={"pattern": _PLAIN_PATH},
    ),
]
Seconds = Annotated[int, Field(ge=1, description="Seconds.", examples=[3600]), BeforeValidator(_whole)]
Wait = Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False)]
HardTimeout = Annotated[float, Field(gt=0, le=MAX_HARD_TIMEOUT, allow_inf_nan=False)]
Env = Annotated[
    dict[str, str],
    AfterValidator(_check_env),
    Field(
        examples=[{"GREETING": "hello"}],
        json_schema_extra={
            "propertyNames": {"pattern": f"^{_ENV_NAME.pattern}$"},
            "additionalProperties": {"type": "string", "pattern": _PLAIN_TEXT},
        },
    ),
]
Metadata = Annotated[dict[str, Any], AfterValidator(_check_metadata), Field(examples=[{"chat": "42"}])]
Command = Annotated[
    str,
    AfterValidator(_one_argument),
    Field(
        min_length=1,
        max_length=MAX_COMMAND,
        examples=["python3 hello.py"],
        json_schema_extra={"pattern": _PLAIN_TEXT},
    ),
]
UserName = Annotated[
    str,
    Field(
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
        description="As whom, inside: `user` unless it is said, or `root`.",
        examples=["user", "root"],
    ),
]
Text = Annotated[str, AfterValidator(_valid_unicode)]
