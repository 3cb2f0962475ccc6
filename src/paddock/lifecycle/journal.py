"""The journal: activity, usage and events of running sandboxes, written durably and in groups.

Every use of a sandbox wants a few rows written. One writer gathers what has come in while the last transaction was
under way and writes it all in the next, so a hundred commands at once cost one commit, and each caller still knows that
its part is on disk before it answers. When the database cannot be used the entries wait here until it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock, Pace
from paddock.errors import StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.engine import due
from paddock.store import deadlines, events, usage
from paddock.store.database import Store
from paddock.store.records import Sandbox

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 1.0
_WAITING_LIMIT = 10_000


@dataclass(slots=True)
class _Entry:
    sandbox: Sandbox
    commands: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


class Journal:
    def __init__(self, clock: Clock, store: Store, bus: Bus) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._entries: dict[str, _Entry] = {}
        self._news = asyncio.Event()
        self._touched: dict[str, float] = {}
        self._away = False
        """The last transaction failed: whoever records something now need not wait for the next try."""

    async def touch(self, sandbox: Sandbox, *, now: bool = False) -> None:
        """Somebody uses the sandbox: push its idle deadline out. ``now``: be sure of it before going on.

        Touches in quick succession are one: what is lost by that is at most a second, or a twentieth of the timeout.
        """
        last = self._touched.get(sandbox.sandbox_id, 0.0)
        moment = self._clock.now()
        if 0 <= moment - last < min(1.0, sandbox.timeout / 20) and not now:
            return
        self._touched[sandbox.sandbox_id] = moment
        entry = self._entry(sandbox)
        if now:
            await self._written(entry)

    async def record(
        self,
        sandbox: Sandbox,
        *,
        commands: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        event: tuple[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Count use, and return when it is written; where the database cannot be used, when it is known to wait."""
        self._touched[sandbox.sandbox_id] = self._clock.now()
        entry = self._entry(sandbox)
        entry.commands += commands
        entry.bytes_in += bytes_in
        entry.bytes_out += bytes_out
        if event is not None:
            entry.events.append(event)
        await self._written(entry)

    def forget(self, sandbox_id: str) -> None:
        self._touched.pop(sandbox_id, None)

    async def run(self, pace: Pace) -> None:
        """The writer. What is left when it stops is for a last ``flush``."""
        while not pace.stopped:
            await self._news.wait()
            if not await self.flush():
                await pace.rest(_RETRY_SECONDS)

    def wake(self) -> None:
        """Look again, also when there is nothing new."""
        self._news.set()

    async def flush(self) -> bool:
        """Write everything that waits, in one transaction. False: the database cannot be used, it waits on."""
        self._news.clear()
        # In order of id, so that two servers never wait for each other's rows crosswise.
        taken = dict(sorted(self._entries.items()))
        self._entries = {}
        if not taken:
            return True
        try:
            async with self._store.write() as connection:
                for entry in taken.values():
                    await self._write(connection, entry)
        except BaseException as error:
            self._away = True
            self._put_back(taken)
            if not isinstance(error, StoreUnavailable):
                raise
            return False
        self._away = False
        for sandbox_id, entry in taken.items():
            _answer(entry)
            if entry.events:
                self._bus.publish(sandbox_id)
        return True

    async def _write(self, connection: AsyncConnection, entry: _Entry) -> None:
        sandbox, now = entry.sandbox, self._clock.now()
        timeout = await events.append(connection, sandbox.sandbox_id, now, *entry.events, last_activity_at=now)
        if timeout is None:
            return  # purged meanwhile: there is nothing left to count for
        if entry.commands or entry.bytes_in or entry.bytes_out:
            await usage.add(
                connection,
                sandbox,
                now,
                commands=entry.commands,
                bytes_in=entry.bytes_in,
                bytes_out=entry.bytes_out,
            )
        await deadlines.push_out(connection, sandbox.sandbox_id, *due(now, timeout))

    def _entry(self, sandbox: Sandbox) -> _Entry:
        entry = self._entries.get(sandbox.sandbox_id)
        if entry is None:
            if len(self._entries) >= _WAITING_LIMIT:
                raise StoreUnavailable("The database has been away for too long: too much waits to be written.")
            entry = self._entries[sandbox.sandbox_id] = _Entry(sandbox)
        elif sandbox.version >= entry.sandbox.version:
            entry.sandbox = sandbox
        self._news.set()
        return entry

    async def _written(self, entry: _Entry) -> None:
        if self._away:
            return
        done = asyncio.get_running_loop().create_future()
        entry.waiting.append(done)
        await done

    def _put_back(self, taken: dict[str, _Entry]) -> None:
        """Nothing was written. Those who wait need not wait longer: their entry is kept, and they have work to do."""
        log.warning("journal waits for the database", sandboxes=len(taken))
        for sandbox_id, entry in taken.items():
            _answer(entry)
            newer = self._entries.get(sandbox_id)
            if newer is not None:
                entry.commands += newer.commands
                entry.bytes_in += newer.bytes_in
                entry.bytes_out += newer.bytes_out
                entry.events += newer.events
                entry.waiting += newer.waiting
                entry.sandbox = newer.sandbox
            self._entries[sandbox_id] = entry
        self._news.set()


def _answer(entry: _Entry) -> None:
    for done in entry.waiting:
        if not done.done():
            done.set_result(None)
    entry.waiting.clear()
