"""What the tools of a user's servers are called here: ``mcp_<server>_<tool>``, whatever the server calls them."""

from __future__ import annotations

import hashlib
import re

PREFIX = "mcp_"
LONGEST = 64
"""What every model takes for the name of a tool."""

_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


def is_relayed(name: str) -> bool:
    return name.startswith(PREFIX)


def tool_name(server: str, tool: str) -> str:
    """The same each time; two tools share one only where a server has two that differ in characters no model takes."""
    plain = f"{PREFIX}{_STRANGE.sub('_', server)}_{_STRANGE.sub('_', tool)}"
    if len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{plain[: LONGEST - 9]}_{digest}"
