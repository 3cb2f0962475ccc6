"""Changes of state that other servers on the same database bring about, for those who follow an owner's sandboxes here.

Only the rows tell of them, so the rows are read again and again: while somebody follows, and while other servers live.
"""

from __future__ import annotations

from contextlib import suppress

from paddock.clock import Clock, Pace
from paddock.errors import StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.nodes import Nodes
from paddock.store import sandboxes
from paddock.store.database import Store

_INTERVAL_S = 1.0
_RECENT_S = 180.0
"""Moments in rows are of the clock of the server that wrote them, and clocks of servers agree within a minute."""


class PeerChanges:
    def __init__(self, clock: Clock, store: Store, bus: Bus, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._nodes = nodes

    async def run(self, pace: Pace) -> None:
        while await pace.rest(_INTERVAL_S):
            with suppress(StoreUnavailable):  # the next look finds what this one would have
                await self.look()

    async def look(self) -> None:
        """Tell followers what has changed since the look before. Those whom it finds for the first time are told what
        changes from now on."""
        owners = self._bus.followed
        if not owners or self._nodes.alone:
            return
        async with self._store.read() as connection:
            found = await sandboxes.changed_since(connection, owners, self._clock.now() - _RECENT_S)
        for owner_id in owners:
            self._bus.compare(owner_id, [row for row in found if row.owner_id == owner_id])
