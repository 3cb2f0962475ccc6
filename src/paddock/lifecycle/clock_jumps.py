"""Corrects deadlines when the system clock is set: by hand, by the first NTP sync, or after a machine was copied or
suspended.

Deadlines and billed time are durations stored as wall-clock times. When the clock jumps they are shifted by the same
amount, in the transaction after which this server uses the new time. If other servers share the database, its times
belong to them as well, so only this server's clock is corrected: their clocks must be synchronized by other means.
"""

from __future__ import annotations

import structlog

from paddock.clock import Clock
from paddock.lifecycle.journal import Journal
from paddock.settings import Settings
from paddock.store import deadlines, sandboxes, servers
from paddock.store.database import Store

log = structlog.get_logger(__name__)

_JUMP_SECONDS = 1.0
"""A smaller drift is normal clock adjustment and shifts nothing."""


class ClockJumps:
    def __init__(self, settings: Settings, clock: Clock, store: Store, journal: Journal, server_id: str) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._journal = journal
        self._server_id = server_id

    async def follow(self) -> None:
        """Adopt the system clock's current time."""
        drift = self._clock.drift()
        if abs(drift) < _JUMP_SECONDS:
            self._clock.follow(drift)
            return
        alone = self._store.sqlite or not await self._has_peers()
        if alone:
            async with self._store.write() as connection:
                await sandboxes.shift(connection, drift)
                await deadlines.shift(connection, drift)
        self._clock.follow(drift)
        self._journal.shift(drift)
        log.warning("the system's clock was set", seconds=round(drift, 3), deadlines_moved=alone)

    async def _has_peers(self) -> bool:
        async with self._store.read() as connection:
            now, ttl = self._clock.now(), self._settings.server_ttl
            return await servers.others_alive(connection, self._server_id, now, ttl)
