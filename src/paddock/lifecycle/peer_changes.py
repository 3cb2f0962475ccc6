"""State changes made by other servers on the same database, for followers of an owner's sandboxes on this server.

Only the rows show such changes, so they are polled while there are followers and other servers are alive.
"""

from __future__ import annotations

from contextlib import suppress

from paddock.clock import Clock, Pace
from paddock.errors import StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.nodes import Nodes
from paddock.store import sandboxes
from paddock.store.database import Store

_POLL_INTERVAL_S = 1.0
_CHANGED_WITHIN_S = 180.0
"""Row times come from the clock of the server that wrote them; servers' clocks are assumed to agree within a minute."""


class PeerChanges:
    def __init__(self, clock: Clock, store: Store, bus: Bus, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._nodes = nodes

    async def run(self, pace: Pace) -> None:
        while await pace.rest(_POLL_INTERVAL_S):
            with suppress(StoreUnavailable):  # the next poll finds the same changes
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
