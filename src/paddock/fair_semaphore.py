"""A few places that many users want: whoever waits is served user by user, however much one of them asks for."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSemaphore:
    """A semaphore that knows its users. Each has at most ``per_user`` of the places at once."""

    def __init__(self, places: int, per_user: int) -> None:
        self._free = places
        self._per_user = per_user
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Users in the order of their turns. With a place free, those who wait have as many as they may."""

    @asynccontextmanager
    async def turn(self, user_id: str) -> AsyncIterator[None]:
        await self.acquire(user_id)
        try:
            yield
        finally:
            self.release(user_id)

    async def acquire(self, user_id: str) -> None:
        if self._free and self._held[user_id] < self._per_user:
            self._take(user_id)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user_id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came in this very moment, and nobody will use it
                self.release(user_id)
            else:
                self._forget(user_id, turn)
            raise

    def release(self, user_id: str) -> None:
        self._free += 1
        self._held[user_id] -= 1
        if not self._held[user_id]:
            del self._held[user_id]
        if (following := self._next()) is not None:
            turn = self._waiting[following].popleft()
            self._waiting.move_to_end(following)
            if not self._waiting[following]:
                del self._waiting[following]
            self._take(following)
            turn.set_result(None)

    def _take(self, user_id: str) -> None:
        self._free -= 1
        self._held[user_id] += 1

    def _next(self) -> str | None:
        return next((user_id for user_id in self._waiting if self._held[user_id] < self._per_user), None)

    def _forget(self, user_id: str, turn: asyncio.Future[None]) -> None:
        self._waiting[user_id].remove(turn)
        if not self._waiting[user_id]:
            del self._waiting[user_id]
