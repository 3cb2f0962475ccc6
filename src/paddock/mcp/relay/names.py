"""Names of relayed tools: ``mcp_<server>_<tool>``, whatever their servers call them."""

from __future__ import annotations

import hashlib
import re

PREFIX = "mcp_"
LONGEST = 64
"""Maximum length of a tool name that every model accepts."""

_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def is_relayed(name: str) -> bool:
    return name.startswith(PREFIX)


def tool_name(server: str, tool: str) -> str:
    """Deterministic. Two tools of a server get the same name only if they differ just in characters that no model
    accepts."""
    plain = f"{PREFIX}{_INVALID_CHARACTER.sub('_', server)}_{_INVALID_CHARACTER.sub('_', tool)}"
    if len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{plain[: LONGEST - 9]}_{digest}"
