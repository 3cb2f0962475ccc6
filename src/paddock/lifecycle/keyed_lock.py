"""A lock per sandbox: operations on one sandbox run in order, operations on different ones do not block each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paddock.errors import SandboxBusy


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
