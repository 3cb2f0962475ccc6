"""Tells those who wait inside this process that there is news in the database. Only a hint: the rows are the truth."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from paddock.store.records import Sandbox

_MAX_CHANGES = 1000


class Changes:
    """Rows of one owner as they changed. Who is too slow misses the oldest."""

    def __init__(self) -> None:
        self._rows: deque[Sandbox] = deque(maxlen=_MAX_CHANGES)
        self._news = asyncio.Event()

    def add(self, sandbox: Sandbox) -> None:
        self._rows.append(sandbox)
        self._news.set()

    async def next(self) -> Sandbox:
        while not self._rows:
            self._news.clear()
            await self._news.wait()
        return self._rows.popleft()


class Bus:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._following: dict[str, set[Changes]] = {}

    def changed(self, sandbox: Sandbox) -> None:
        """It is in another state; this is its row."""
        self.publish(sandbox.sandbox_id)
        for changes in self._following.get(sandbox.owner_id, ()):
            changes.add(sandbox)

    @contextlib.contextmanager
    def follow(self, owner_id: str) -> Iterator[Changes]:
        """Every change of state of this owner's sandboxes, as far as this process brings it about."""
        changes = Changes()
        self._following.setdefault(owner_id, set()).add(changes)
        try:
            yield changes
        finally:
            self._following[owner_id].discard(changes)
            if not self._following[owner_id]:
                del self._following[owner_id]

    def publish(self, sandbox_id: str) -> None:
        for event in self._waiting.get(sandbox_id, ()):
            event.set()

    def listened_to(self, sandbox_id: str) -> bool:
        return sandbox_id in self._waiting

    @contextlib.contextmanager
    def listen(self, sandbox_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be news; the listener clears it before it looks."""
        event = asyncio.Event()
        self._waiting.setdefault(sandbox_id, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[sandbox_id].discard(event)
            if not self._waiting[sandbox_id]:
                del self._waiting[sandbox_id]
