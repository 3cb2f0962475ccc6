"""What the watchdog of a server's event loop wrote into its log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from paddock.server.loop_watchdog import LoopWatchdog

MAX_STALL_SECONDS = 0.1
"""Of computing in one go, by the clock of the loop's thread: what the watchdog reports."""

MAX_CPU_SECONDS = 0.2
"""That the loop of a server under test may compute in one go. By the thread's own clock: a starved machine adds nothing
to it. No suite that was measured (E2B's, Daytona's, MCP, sessions, LangChain, costly answers) came to half of
it; the rest is for what a cold cache or a slow core adds to the first use of a part."""


def stalls(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if "the event loop was blocked" in line and line.startswith("{")]


def assert_loop_was_free(log: Path, cpu_seconds: float = MAX_CPU_SECONDS) -> None:
    for stall in stalls(log):
        assert stall["cpu_seconds"] <= cpu_seconds, (
            f"the event loop computed for {stall['cpu_seconds']} s:\n{stall['stack']}"
        )


@contextmanager
def free_loop(watchdog: LoopWatchdog, most: float = MAX_STALL_SECONDS) -> Iterator[None]:
    """Of a server in this process."""
    watchdog.stalls.clear()
    yield
    worst = max(watchdog.stalls, key=lambda stall: stall.cpu_seconds, default=None)
    assert worst is None or worst.cpu_seconds <= most, f"{worst.cpu_seconds} s:\n{''.join(worst.stack)}"


@asynccontextmanager
async def free_own_loop(most: float = MAX_STALL_SECONDS) -> AsyncIterator[None]:
    """Of the test itself."""
    watchdog = LoopWatchdog(most)
    watchdog.start()
    try:
        with free_loop(watchdog, most):
            yield
    finally:
        watchdog.stop()
