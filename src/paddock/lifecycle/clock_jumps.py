"""The system's clock may be set while sandboxes run: by hand, by a first look at a time server, by a machine that was
copied or stood still. Deadlines and what is billed are spans of time, kept as moments of the wall clock: when that is
set, they are moved with it, in the transaction after which this server goes by the new time.

Where other servers share the database, the moments in it are as much theirs; then only this server's idea of the time
is corrected. Their clocks must agree by themselves, as those of all machines that work together.
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
"""Less than this is a clock that is adjusted, which moves nothing that anybody could notice."""


class ClockJumps:
    def __init__(self, settings: Settings, clock: Clock, store: Store, journal: Journal, server_id: str) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._journal = journal
        self._server_id = server_id

    async def follow(self) -> None:
        """Go by the system's clock, wherever it is now."""
        drift = self._clock.drift()
        if abs(drift) < _JUMP_SECONDS:
            self._clock.follow(drift)
            return
        alone = self._store.sqlite or not await self._has_company()
        if alone:
            async with self._store.write() as connection:
                await sandboxes.shift(connection, drift)
                await deadlines.shift(connection, drift)
        self._clock.follow(drift)
        self._journal.shift(drift)
        log.warning("the system's clock was set", seconds=round(drift, 3), deadlines_moved=alone)

    async def _has_company(self) -> bool:
        async with self._store.read() as connection:
            now, ttl = self._clock.now(), self._settings.server_ttl
            return await servers.others_alive(connection, self._server_id, now, ttl)
