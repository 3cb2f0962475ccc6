"""Corrects deadlines when the system clock is set: by hand, by the first NTP sync, or after a machine was copied or
suspended.

A sandbox belongs to a node, so a server moves those of its own nodes and no others: another machine's clock was not set
with its own. Where another server shares the node, each would move them: then only this server's idea of the time is
corrected, and their clocks must agree by themselves, as those of all machines that work together.
"""

from __future__ import annotations

import structlog

from paddock.clock import Clock
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.store import deadlines, sandboxes
from paddock.store.database import Store

log = structlog.get_logger(__name__)

_JUMP_SECONDS = 1.0
"""A smaller drift is normal clock adjustment and shifts nothing."""


class ClockJumps:
    def __init__(self, clock: Clock, store: Store, journal: Journal, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._journal = journal
        self._nodes = nodes

    async def follow(self) -> None:
        """Adopt the system clock's current time."""
        drift = self._clock.drift()
        if abs(drift) < _JUMP_SECONDS:
            self._clock.follow(drift)
            return
        # Alone: what another transaction has begun to write by the old time would be moved by nobody.
        async with self._store.write(alone=True) as connection:
            mine = None if self._store.sqlite else await self._nodes.unshared(connection)
            if mine is None or mine:
                await sandboxes.shift(connection, drift, mine)
                await deadlines.shift(connection, drift, mine)
        self._clock.follow(drift)
        self._journal.shift(drift)
        self._nodes.shift(drift)
        told = {} if mine is None else {"nodes": sorted(mine)}
        log.warning(
            "the system's clock was set", seconds=round(drift, 3), deadlines_moved=mine is None or bool(mine), **told
        )
