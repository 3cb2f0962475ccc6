"""The system's clock as servers under test see it: real time and an offset, which the test sets while they run.

The offset and what each server has followed are in a file that all of them map. Nothing in the product knows of it:
``time.time`` is wrapped from outside.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path

from paddock.clock import SystemClock

HOUR = 3600.0
_MAX_SERVERS = 4
_VALUE = struct.Struct("d")
_FOLLOWED_S = 30.0


class SharedClock:
    """The clock is set by whole hours, and a test takes less than half of one: so what was really the time when
    something happened can be read from any time that a server wrote down."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(_VALUE.size * (1 + _MAX_SERVERS)))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 0)
        self._began = time.time()
        self.steady = asyncio.Lock()
        """Held while the clock is set, and by whoever starts or ends a server that must have followed it."""

    @property
    def offset(self) -> float:
        return self._get(0)

    def set_offset(self, seconds: float) -> None:
        self._put(0, seconds)

    def now(self) -> float:
        """What servers take for the time."""
        return time.time() + self.offset

    def real(self, at: float) -> float:
        """When that was, by the clock of this test."""
        return self._began + (at - self._began + HOUR / 2) % HOUR - HOUR / 2

    def followed(self, number: int) -> bool:
        return self._get(1 + number) == self.offset

    async def until_followed(self, number: int, alive: Callable[[], bool]) -> bool:
        """False: that server has died."""
        async with asyncio.timeout(_FOLLOWED_S):
            while not self.followed(number):
                if not alive():
                    return False
                await asyncio.sleep(0.01)
        return True

    def install(self, number: int) -> None:
        """In a server's process: it goes by this clock from now on, and tells when it has followed a jump."""
        real = time.time
        follow = SystemClock.follow
        self._put(1 + number, self.offset)
        time.time = lambda: real() + self.offset

        def followed(clock: SystemClock, seconds: float) -> None:
            follow(clock, seconds)
            if abs(clock.drift()) < 1:
                self._put(1 + number, self.offset)

        SystemClock.follow = followed  # type: ignore[method-assign,assignment]

    def _get(self, place: int) -> float:
        return float(_VALUE.unpack_from(self._memory, place * _VALUE.size)[0])

    def _put(self, place: int, value: float) -> None:
        _VALUE.pack_into(self._memory, place * _VALUE.size, value)
