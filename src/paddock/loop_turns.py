"""Turns on the event loop: a task that never has to wait lets the others run every few milliseconds.

An ``await`` whose result is there already does not suspend. A peer that sends small pieces without end would otherwise
keep the loop to itself: interim responses, chunks of one byte, requests sent ahead. Whatever reads from such a peer, or
works through what it sent, calls ``give_turn`` between two pieces.
"""

from __future__ import annotations

import asyncio
import threading
import time

TURN_SECONDS = 0.002

_turn = threading.local()


def begin_turn() -> None:
    """The loop has just been with others."""
    _turn.began = time.monotonic()


async def give_turn() -> None:
    if time.monotonic() - getattr(_turn, "began", 0.0) > TURN_SECONDS:
        await asyncio.sleep(0)
        begin_turn()
