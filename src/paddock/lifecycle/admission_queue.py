"""Creates, or commands, that come in the same moment begin one after another.

Taken up all at once, every step of the first waits for that step of all the others, and all of them end when the last
one does. One after another the first has its answer, or its command runs on another core, while the next is looked
at. Nobody waits long for one that takes its time: its turn is over after a moment, and it goes on beside the next.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LONGEST_TURN = 0.004


class AdmissionQueue:
    def __init__(self, at_once: int | None = None, longest_turn: float = _LONGEST_TURN) -> None:
        self._free = at_once or os.cpu_count() or 1
        self._longest_turn = longest_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """In the order of arrival."""
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._wait()
        over = False

        def leave() -> None:
            nonlocal over
            if not over:
                over = True
                self._pass_on()

        timer = asyncio.get_running_loop().call_later(self._longest_turn, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()

    async def _wait(self) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the turn and the cancellation came in the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            next_one = self._waiting.popleft()
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1
