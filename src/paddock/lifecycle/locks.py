"""The order of work: operations on one sandbox run one after another, and creates or commands that arrive together are
begun one after another."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paddock.errors import SandboxBusy

_MAX_SLOT_S = 0.004


class KeyedLock:
    """Locks by sandbox id, created on demand and removed when no task holds or awaits them."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._holders: dict[str, asyncio.Task[Any]] = {}

    def busy(self, sandbox_id: str) -> bool:
        return sandbox_id in self._locks

    def holder(self, sandbox_id: str) -> asyncio.Task[Any] | None:
        """The task that holds the lock."""
        return self._holders.get(sandbox_id)

    @asynccontextmanager
    async def take(self, sandbox_id: str, wait: float) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(sandbox_id, (asyncio.Lock(), 0))
        self._locks[sandbox_id] = (lock, wanted + 1)
        try:
            try:
                async with asyncio.timeout(wait):
                    await lock.acquire()
            except TimeoutError:
                raise busy(sandbox_id) from None
            if (task := asyncio.current_task()) is not None:
                self._holders[sandbox_id] = task
            try:
                yield
            finally:
                self._holders.pop(sandbox_id, None)
                lock.release()
        finally:
            lock, wanted = self._locks[sandbox_id]
            if wanted == 1:
                del self._locks[sandbox_id]
            else:
                self._locks[sandbox_id] = (lock, wanted - 1)


def busy(sandbox_id: str) -> SandboxBusy:
    return SandboxBusy(
        f"Another operation on sandbox {sandbox_id!r} has not finished yet. Try again in a moment.",
        details={"sandbox_id": sandbox_id},
        retry_after=2,
    )


class AdmissionQueue:
    """Staggers creates, or commands, that arrive at the same moment.

    If all start at once, each step of the first one waits for the same step of all others, and all finish when the last
    one does. Started one after another, the first one is answered, or runs on another core, while the next is
    processed. A slot is held for at most a few milliseconds; slower work then continues alongside the next, so nothing
    waits long.
    """

    def __init__(self, at_once: int | None = None, longest_turn: float = _MAX_SLOT_S) -> None:
        self._free = at_once or os.cpu_count() or 1
        self._longest_turn = longest_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot, in order of arrival. The slot is freed on exit, or earlier once the time limit has
        passed."""
        if self._free and not self._waiting:
            self._free -= 1
        else:
            await self._wait()
        over = False

        def leave() -> None:
            nonlocal over
            if not over:
                over = True
                self._release_slot()

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
            # the slot was granted and the task was cancelled in the same loop iteration
            if mine.done() and not mine.cancelled():
                self._release_slot()
            raise

    def _release_slot(self) -> None:
        while self._waiting:
            next_one = self._waiting.popleft()
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1
