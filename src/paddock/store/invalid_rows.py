"""Handling of rows that no version of this server writes: from a manual edit, a disk error, another schema version.

One such row must not prevent others from being read. Valid columns are used, invalid ones replaced by safe values, and
the row's ``reason`` and the log say so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import structlog

from paddock.store.columns import Mark, StoredField, fields_of
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

_LATEST = 253_402_300_799.0
"""The last second of the year 9999: the maximum of dates in responses."""
_MOMENTS = tuple(field.name for field in fields_of(SandboxRow) if Mark.MOMENT in field.marks)
_JSON = tuple(field for field in fields_of(SandboxRow) if field.json)
_ENUMS = tuple(field for field in fields_of(SandboxRow) if field.enum)
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
    bad = [field.name for field in _JSON if not _has_shape(field, values[field.name])]
    for field in _JSON:
        if field.name in bad:
            values[field.name] = field.fallback
    bad += _mend_times(values)
    for field in _ENUMS:
        try:
            values[field.name] = field.read(values[field.name])
        except ValueError:
            bad.append(field.name)
            values[field.name] = field.fallback
    if bad:
        problem = f"Its row cannot be read in full ({', '.join(sorted(bad))})."
        values["reason"] = f"{problem} {values['reason'] or ''}".strip()
        say_once("a sandbox's row cannot be read in full", sandbox_id=str(values["sandbox_id"]), problem=problem)


def _has_shape(field: StoredField, value: Any) -> bool:
    if isinstance(value, InvalidRow):
        return False
    if value is None:
        return field.optional
    return isinstance(value, dict if field.kind is Mapping else list)


def _mend_times(values: dict[str, Any]) -> list[str]:
    bad = []
    for name in _MOMENTS:
        value = values[name]
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= _LATEST):
            bad.append(name)
            beyond = isinstance(value, int | float) and not math.isnan(value) and value > 0
            values[name] = _LATEST if beyond else 0.0
    since = values["running_since"]
    if since is not None and since < values["created_at"]:
        values["running_since"] = values["created_at"]  # else every day since 1970 would be billed
    return bad
