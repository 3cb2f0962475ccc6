"""The effect of an attack on others: event loop stalls seen by the server's watchdog (``loop_stalls`` of ``/health``),
and response times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from paddock.doctor.server.target import RESPONSIVE_S, Target

PULSE_S = 0.05
_ROUNDS = 3


async def stalled(target: Target, attack: Callable[[], Awaitable[str | None]]) -> str | None:
    """Run an attack, which reports its own failures. It is repeated after a stall, because other load of the machine
    may cause one, but not repeatedly."""
    for _ in range(_ROUNDS):
        if (problem := await _stalled_once(target, attack)) is None:
            return None
    return problem


async def _stalled_once(target: Target, attack: Callable[[], Awaitable[str | None]]) -> str | None:
    before = await _stalls(target)
    attacking = asyncio.ensure_future(attack())
    slowest = 0.0
    try:
        while not attacking.done():
            began = time.monotonic()
            await target.admin.get("/health")
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(PULSE_S)
        if (problem := attacking.result()) is not None:
            return problem
    finally:
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    if stalls := await _stalls(target) - before:
        return f"the event loop was blocked {stalls} times, and others waited {slowest:.1f} s for an answer"
    return f"others waited {slowest:.1f} s for an answer" if slowest > RESPONSIVE_S else None


async def _stalls(target: Target) -> int:
    return int((await target.admin.get("/health")).raise_for_status().json()["loop_stalls"])
