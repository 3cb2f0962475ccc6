"""Clocks, injected everywhere so that tests can advance time. Wall time is in epoch seconds, because deadlines outlive
the process."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall time in epoch seconds, according to the system clock at the last ``follow``."""

    def drift(self) -> float:
        """How far the system clock has been set since then: ahead, or (negative) back."""

    def follow(self, seconds: float) -> None:
        """Adopt this many seconds of the drift."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds of this clock's time."""


class SystemClock:
    """Unaffected by changes of the system clock until ``follow`` is called, so that stored times can be shifted with
    it."""

    def __init__(self) -> None:
        self._ahead = time.time() - _steady()

    def now(self) -> float:
        return _steady() + self._ahead

    def drift(self) -> float:
        return time.time() - self.now()

    def follow(self, seconds: float) -> None:
        self._ahead += seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _steady() -> float:
    """Seconds since boot, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ManualClock:
    """A clock that advances only when told to. It may go backwards, as real clocks do."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._passed = 0.0
        self._drift = 0.0
        self._moved = asyncio.Condition()

    def now(self) -> float:
        return self._now

    def drift(self) -> float:
        return self._drift

    def follow(self, seconds: float) -> None:
        self._now += seconds
        self._drift -= seconds

    async def sleep(self, seconds: float) -> None:
        until = self._passed + seconds
        async with self._moved:
            await self._moved.wait_for(lambda: self._passed >= until)

    async def advance(self, seconds: float) -> None:
        async with self._moved:
            self._now += seconds
            self._passed += seconds
            self._moved.notify_all()

    def set_system(self, seconds: float) -> None:
        """Simulate that the system clock is set by this many seconds."""
        self._drift += seconds


class Pace:
    """The pace of a background loop: sleeps between rounds, and ends the sleep at once on ``stop``.

    A loop that stops between two rounds leaves nothing half-done, unlike one that is cancelled.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    async def rest(self, seconds: float) -> bool:
        """True: continue. False: this was the last round."""
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self.stopped


def iso(epoch: float) -> str:
    """RFC 3339 in UTC with milliseconds, as all timestamps of the API."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
