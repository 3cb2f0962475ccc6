"""A lock that many share, and that one can hold alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LockSide:
    acquire: Callable[[], Awaitable[object]]
    release: Callable[[], None]


class SharedLock:
    """Whoever wants it alone is next: later ones wait until that is over. Sharing it alone never waits."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self.shared = LockSide(self._enter, self._leave)
        self.alone = LockSide(self._enter_alone, self._gate.release)

    async def _enter(self) -> None:
        if self._gate.locked():
            async with self._gate:
                pass
        self._inside += 1
        self._empty.clear()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    async def _enter_alone(self) -> None:
        await self._gate.acquire()
        try:
            await self._empty.wait()
        except BaseException:
            self._gate.release()
            raise
