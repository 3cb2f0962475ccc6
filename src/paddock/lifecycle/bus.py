"""Notifies waiters in this process of changes in the database. Only a hint: waiters must read the rows themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from paddock.clock import Clock, Pace
from paddock.errors import StoreUnavailable
from paddock.lifecycle.nodes import Nodes
from paddock.models import State
from paddock.store import sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow

_MAX_CHANGES = 1000
_POLL_INTERVAL_S = 1.0
_CHANGED_WITHIN_S = 180.0
"""Row times come from the clock of the server that wrote them; servers' clocks are assumed to agree within a minute."""


class RowChanges:
    """Queue of changed rows of one owner's sandboxes. A slow consumer loses the oldest."""

    def __init__(self) -> None:
        self._rows: deque[SandboxRow] = deque(maxlen=_MAX_CHANGES)
        self._added = asyncio.Event()
        self._known: dict[str, tuple[int, State]] | None = None
        """Version and state of recently changed rows that this process has seen. None until the first comparison."""

    def add(self, sandbox: SandboxRow) -> None:
        if self._known is not None:
            self._known[sandbox.sandbox_id] = (sandbox.version, sandbox.state)
        self._rows.append(sandbox)
        self._added.set()

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
            self._added.clear()
            await self._added.wait()
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
        :class:`PeerChanges` finds."""
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


class PeerChanges:
    """State changes made by other servers on the same database, for followers of an owner's sandboxes on this server.
    Only the rows show such changes, so they are polled while there are followers and other servers are alive."""

    def __init__(self, clock: Clock, store: Store, bus: Bus, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._nodes = nodes

    async def run(self, pace: Pace) -> None:
        while await pace.rest(_POLL_INTERVAL_S):
            with contextlib.suppress(StoreUnavailable):  # the next poll finds the same changes
                await self.look()

    async def look(self) -> None:
        """Notify followers of what has changed since the last poll. New followers get changes from now on."""
        owners = self._bus.followed
        if not owners or self._nodes.alone:
            return
        async with self._store.read() as connection:
            found = await sandboxes.changed_since(connection, owners, self._clock.now() - _CHANGED_WITHIN_S)
        for owner_id in owners:
            self._bus.compare(owner_id, [row for row in found if row.owner_id == owner_id])
