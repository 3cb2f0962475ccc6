"""Tracks which sandboxes are in use. Long uses (a stream, a terminal, a slow command) keep postponing the idle
deadline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddock.clock import Pace
from paddock.lifecycle.journal import Journal
from paddock.store.records import SandboxRow

_INTERVAL = 5.0


class Activity:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._inside: dict[str, tuple[SandboxRow, int]] = {}

    def inside(self, sandbox_id: str) -> SandboxRow | None:
        """The sandbox's row if it is in use through this server, else None."""
        entry = self._inside.get(sandbox_id)
        return entry[0] if entry else None

    @contextmanager
    def enter(self, sandbox: SandboxRow) -> Iterator[None]:
        _, count = self._inside.get(sandbox.sandbox_id, (sandbox, 0))
        self._inside[sandbox.sandbox_id] = (sandbox, count + 1)
        try:
            yield
        finally:
            current, count = self._inside[sandbox.sandbox_id]
            if count == 1:
                del self._inside[sandbox.sandbox_id]
            else:
                self._inside[sandbox.sandbox_id] = (current, count - 1)

    async def refresh(self) -> float:
        """Postpone the idle deadline of every sandbox in use; returns the seconds until the next refresh is needed."""
        users = [sandbox for sandbox, _ in self._inside.values()]
        for sandbox in users:
            await self._journal.touch(sandbox)
        return min((sandbox.timeout / 4 for sandbox in users), default=_INTERVAL)

    async def run(self, pace: Pace) -> None:
        while await pace.rest(min(_INTERVAL, await self.refresh())):
            pass
