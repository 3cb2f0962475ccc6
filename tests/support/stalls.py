"""What the watchdog of a server's event loop wrote into its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_CPU_SECONDS = 1.0
"""That the loop of a server under test may compute in one go. By the thread's own clock: a starved machine adds nothing
to it."""


def stalls(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if "the event loop was blocked" in line and line.startswith("{")]


def assert_loop_was_free(log: Path, cpu_seconds: float = MAX_CPU_SECONDS) -> None:
    for stall in stalls(log):
        assert stall["cpu_seconds"] <= cpu_seconds, (
            f"the event loop computed for {stall['cpu_seconds']} s:\n{stall['stack']}"
        )
