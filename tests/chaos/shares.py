"""How many of all kills each scene gets: those that cannot run on this machine leave their share to the others."""

from __future__ import annotations

import os
from collections.abc import Collection

TOTAL = int(os.environ.get("CHAOS_KILLS", "60"))
"""For one scene that is run alone, all of them."""
_SHARES = {"local": 500, "postgres-two-servers": 250, "postgres-two-nodes": 200, "docker": 50}
"""Per thousand. Each start of a server with Docker takes ten times as long."""


def kills_of(scene: str, scenes: Collection[str], total: int = TOTAL) -> int:
    """Of ``scene``, where all of ``scenes`` run. Together they are ``total``."""
    running = [name for name in _SHARES if name in scenes]
    whole = sum(_SHARES[name] for name in running)
    before = sum(_SHARES[name] for name in running[: running.index(scene)])
    return total * (before + _SHARES[scene]) // whole - total * before // whole
