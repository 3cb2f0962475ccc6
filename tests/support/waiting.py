"""Waiting for what comes about beside a test: by looking again and again, with one bound for all.

What does not come about takes the whole bound, once. What does takes no longer with a long bound than with a short one,
but a short one fails on a busy machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

PATIENCE_S = 120.0
"""Pytest ends a test after 300 s."""
_PAUSE_S = 0.01


async def until(look: Callable[[], Awaitable[T]] | Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first thing seen that is true. Looks that take long are made more rarely."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        seen = look()
        found = cast(T, await seen if isinstance(seen, Awaitable) else seen)
        if found:
            return found
        _check(end, seconds, found)
        await asyncio.sleep(max(_PAUSE_S, time.monotonic() - began))


def wait_until(look: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The same in tests that are no coroutines."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := look():
            return found
        _check(end, seconds, found)
        time.sleep(max(_PAUSE_S, time.monotonic() - began))


def _check(end: float, seconds: float, found: object) -> None:
    assert time.monotonic() < end, f"it did not come about in {seconds:g} s; seen at last: {found!r}"
