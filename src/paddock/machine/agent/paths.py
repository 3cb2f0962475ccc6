"""Paths as the agent expects them: absolute and normalized."""

from __future__ import annotations

from paddock import errors
from paddock.machine.agent.wire import encoded

_MAX_PART = 255


def plain(path: str) -> str:
    """Normalize a path: removes redundant slashes and dots. Raises Invalid for relative paths and for '..'."""
    if not path.startswith("/"):
        raise errors.Invalid(f"{path[:200]!r} must be absolute, for example /workspace/notes.txt.")
    if "\0" in path:
        raise errors.Invalid("A path must not contain a NUL character.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise errors.Invalid(f"{path[:200]!r} must not contain '..'.")
    if any(len(encoded(part)) > _MAX_PART for part in parts):
        raise errors.Invalid(f"A part of the path is longer than {_MAX_PART} bytes.")
    return "/" + "/".join(parts)
