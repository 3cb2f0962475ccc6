"""Handling of rows that no version of this server writes: from a manual edit, a disk error, another schema version.

One such row must not prevent others from being read. Valid columns are used, invalid ones replaced by safe values, and
the row's ``reason`` and the log say so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import structlog

from paddock.models import Isolation, State, TimeoutAction, TimeoutFrom

log = structlog.get_logger(__name__)

E = TypeVar("E", bound=StrEnum)

_LATEST = 253_402_300_799.0
"""The last second of the year 9999: the maximum of dates in responses."""
_TIMES = (
    "created_at",
    "started_at",
    "running_since",
    "last_activity_at",
    "state_changed_at",
    "deleted_at",
    "ends_at",
)
_SAFE: Mapping[str, Any] = {
    "env": {},
    "metadata": {},
    "egress": {"mode": "none", "allow": [], "deny": []},
    "mounts": [],
    "network": None,
    "daytona": None,
}
"""Replacements for invalid JSON columns."""
_MAX_LOGGED = 1000
_logged: set[tuple[str, str]] = set()


class InvalidRow(dict[str, Any]):
    """Stands for the value of a JSON column that is not valid JSON. An empty dict for other readers."""


def loads(text: str | bytes) -> Any:
    """JSON parser for the database driver, which would otherwise fail the whole result because of one value."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return InvalidRow()


def say_once(event: str, *, sandbox_id: str, problem: str) -> None:
    """Log an error once per sandbox and event: such a row stays invalid for many rounds."""
    if (event, sandbox_id) in _logged:
        return
    if len(_logged) >= _MAX_LOGGED:
        _logged.clear()
    _logged.add((event, sandbox_id))
    log.error(event, sandbox_id=sandbox_id, problem=problem)


def mend(values: dict[str, Any]) -> None:
    """Replace invalid columns of a sandbox's row, in place."""
    bad = [name for name in _SAFE if not _has_shape(name, values[name])]
    for name in bad:
        values[name] = _SAFE[name]
    bad += _mend_times(values)
    values["state"] = _one_of(State, "state", State.FAILED, values, bad)
    values["on_timeout"] = _one_of(TimeoutAction, "on_timeout", TimeoutAction.PAUSE, values, bad)
    values["timeout_from"] = _one_of(TimeoutFrom, "timeout_from", TimeoutFrom.ACTIVITY, values, bad)
    if values["isolation"] is not None:
        values["isolation"] = _one_of(Isolation, "isolation", Isolation.HARDENED, values, bad)
    if bad:
        problem = f"Its row cannot be read in full ({', '.join(sorted(bad))})."
        values["reason"] = f"{problem} {values['reason'] or ''}".strip()
        say_once("a sandbox's row is spoiled", sandbox_id=str(values["sandbox_id"]), problem=problem)


def _has_shape(name: str, value: Any) -> bool:
    if isinstance(value, InvalidRow):
        return False
    if name == "mounts":
        return isinstance(value, list)
    return isinstance(value, dict) or (value is None and _SAFE[name] is None)


def _mend_times(values: dict[str, Any]) -> list[str]:
    bad = []
    for name in _TIMES:
        value = values[name]
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= _LATEST):
            bad.append(name)
            beyond = isinstance(value, int | float) and not math.isnan(value) and value > 0
            values[name] = _LATEST if beyond else 0.0
    since = values["running_since"]
    if since is not None and since < values["created_at"]:
        values["running_since"] = values["created_at"]  # else every day since 1970 would be billed
    return bad


def _one_of(kind: type[E], name: str, otherwise: E, values: Mapping[str, Any], bad: list[str]) -> E:
    try:
        return kind(values[name])
    except ValueError:
        bad.append(name)
        return otherwise
