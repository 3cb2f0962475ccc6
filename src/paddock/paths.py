"""What a path in a sandbox means: the one place that says where a relative one begins."""

from __future__ import annotations

WORKSPACE = "/workspace"
"""Where work happens, and the default working directory of every command."""
HOME = "/home/user"


def absolute(path: str, *, workspace: str = WORKSPACE, home: str = HOME) -> str:
    """As a shell in the workspace would take it: a relative path begins there, and ``~`` is home.

    ``..`` is not resolved: that a path has none, or stays where it may go, is checked by whoever opens it.
    """
    if path.startswith("/"):
        return path
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return f"{workspace}/{path}"
