"""Tells those who wait inside this process that there is news in the database. Only a hint: the rows are the truth."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Bus:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

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
