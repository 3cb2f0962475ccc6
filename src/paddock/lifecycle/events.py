"""Reads a sandbox's event log: a page at a time, or as a stream of new events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog

from paddock.accounts.accounts import Principal
from paddock.clock import Clock
from paddock.errors import StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.journal import Journal
from paddock.store import events
from paddock.store.database import Store
from paddock.store.records import EventRow

log = structlog.get_logger(__name__)

_BATCH = 500
_POLL_INTERVAL_S = 1.0
"""How often to poll for events that other servers wrote; those of this server are signalled at once."""


class Events:
    def __init__(self, clock: Clock, store: Store, controller: Controller, journal: Journal, bus: Bus) -> None:
        self._clock = clock
        self._store = store
        self._controller = controller
        self._journal = journal
        self._bus = bus

    async def record_event(self, sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event that a provider caused by itself. Does not count as activity."""
        try:
            async with self._store.write() as connection:
                await events.append(connection, sandbox_id, self._clock.now(), (kind, data))
        except StoreUnavailable as error:
            log.warning("an event could not be written", sandbox_id=sandbox_id, kind=kind, problem=error.message)
            return
        self._bus.publish(sandbox_id)

    async def page(self, who: Principal, sandbox_id: str, after: int, limit: int) -> list[EventRow]:
        await self._controller.get(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        async with self._store.read() as connection:
            return await events.after(connection, sandbox_id, after, limit)

    async def between(
        self,
        who: Principal,
        sandbox_id: str,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int,
        newest_first: bool = False,
    ) -> list[EventRow]:
        """Events of a time range, both ends included."""
        await self._controller.get(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        async with self._store.read() as connection:
            return await events.between(connection, sandbox_id, since, until, limit, newest_first=newest_first)

    async def stream(self, who: Principal, sandbox_id: str, after: int) -> AsyncIterator[EventRow | None]:
        """Every event after this number as it is written; None while there is nothing new. Ends when the sandbox is
        deleted."""
        with self._bus.listen(sandbox_id) as changed:
            await self._controller.get(who, sandbox_id)
            await self._journal.settled(sandbox_id)
            while True:
                changed.clear()
                async with self._store.read() as connection:
                    batch = await events.after(connection, sandbox_id, after, _BATCH)
                for event in batch:
                    after = event.seq
                    yield event
                    if event.type == "sandbox.deleted":
                        return
                if not batch:
                    yield None
                    try:
                        async with asyncio.timeout(_POLL_INTERVAL_S):
                            await changed.wait()
                    except TimeoutError:
                        continue
