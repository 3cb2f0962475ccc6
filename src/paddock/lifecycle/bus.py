"""Notifies waiters in this process of changes in the database. Only a hint: waiters must read the rows themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from paddock.models import State
from paddock.store.records import SandboxRow

_MAX_CHANGES = 1000


class RowChanges:
    """Queue of changed rows of one owner's sandboxes. A slow consumer loses the oldest."""

    def __init__(self) -> None:
        self._rows: deque[SandboxRow] = deque(maxlen=_MAX_CHANGES)
        self._news = asyncio.Event()
        self._known: dict[str, tuple[int, State]] | None = None
        """Version and state of recently changed rows that this process has seen. None until the first comparison."""

    def add(self, sandbox: SandboxRow) -> None:
        if self._known is not None:
            self._known[sandbox.sandbox_id] = (sandbox.version, sandbox.state)
        self._rows.append(sandbox)
        self._news.set()

    def compare(self, rows: Sequence[SandboxRow]) -> None:
        """Queue the rows that are new or have changed state since the last call. ``rows`` are all that changed recently
        on any server; they may have been read before a row that ``add`` has received since, so versions are compared.
        """
        if self._known is None:
            self._known = {row.sandbox_id: (row.version, row.state) for row in rows}
            return
        for row in rows:
            known, new = self._known.pop(row.sandbox_id, None), (row.version, row.state)
            self._known[row.sandbox_id] = new if known is None or known[0] < row.version else known
            if known is None or (known[0] < row.version and known[1] is not row.state):
                self.add(row)
        while len(self._known) > max(_MAX_CHANGES, 2 * len(rows)):
            del self._known[next(iter(self._known))]

    async def next(self) -> SandboxRow:
        while not self._rows:
            self._news.clear()
            await self._news.wait()
        return self._rows.popleft()


class Bus:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._following: dict[str, set[RowChanges]] = {}

    def changed(self, sandbox: SandboxRow) -> None:
        """The sandbox has entered another state; ``sandbox`` is its new row."""
        self.publish(sandbox.sandbox_id)
        for changes in self._following.get(sandbox.owner_id, ()):
            changes.add(sandbox)

    @contextlib.contextmanager
    def follow(self, owner_id: str) -> Iterator[RowChanges]:
        """Yields the state changes of this owner's sandboxes: those made by this process, and those that
        :class:`~paddock.lifecycle.peer_changes.PeerChanges` finds."""
        changes = RowChanges()
        self._following.setdefault(owner_id, set()).add(changes)
        try:
            yield changes
        finally:
            self._following[owner_id].discard(changes)
            if not self._following[owner_id]:
                del self._following[owner_id]

    @property
    def followed(self) -> Sequence[str]:
        """Owners whose sandboxes are being followed."""
        return list(self._following)

    def compare(self, owner_id: str, rows: Sequence[SandboxRow]) -> None:
        for changes in self._following.get(owner_id, ()):
            changes.compare(rows)

    def publish(self, sandbox_id: str) -> None:
        for event in self._waiting.get(sandbox_id, ()):
            event.set()

    def listened_to(self, sandbox_id: str) -> bool:
        return sandbox_id in self._waiting

    @contextlib.contextmanager
    def listen(self, sandbox_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the sandbox may have changed; the listener clears it before it reads
        the row."""
        event = asyncio.Event()
        self._waiting.setdefault(sandbox_id, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[sandbox_id].discard(event)
            if not self._waiting[sandbox_id]:
                del self._waiting[sandbox_id]
