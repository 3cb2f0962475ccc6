"""Reading the record of a sandbox: a page at a time, or as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from paddock.lifecycle.accounts import Principal
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.journal import Journal
from paddock.store import events
from paddock.store.database import Store
from paddock.store.records import Event

_BATCH = 500
_LOOK_SECONDS = 1.0
"""How often to look for what other servers have written; what this one writes is told at once."""


class Events:
    def __init__(self, store: Store, controller: Controller, journal: Journal, bus: Bus) -> None:
        self._store = store
        self._controller = controller
        self._journal = journal
        self._bus = bus

    async def page(self, who: Principal, sandbox_id: str, after: int, limit: int) -> list[Event]:
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
    ) -> list[Event]:
        """Those of a time, both ends included."""
        await self._controller.get(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        async with self._store.read() as connection:
            return await events.between(connection, sandbox_id, since, until, limit, newest_first=newest_first)

    async def stream(self, who: Principal, sandbox_id: str, after: int) -> AsyncIterator[Event | None]:
        """Everything after this number as it comes; None while there is nothing. Ends with the sandbox."""
        with self._bus.listen(sandbox_id) as news:
            await self._controller.get(who, sandbox_id)
            await self._journal.settled(sandbox_id)
            while True:
                news.clear()
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
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await news.wait()
                    except TimeoutError:
                        continue
