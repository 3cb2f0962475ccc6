"""The queue of deadlines. It lives in the database, so a timeout that was set before a restart fires after it.

Claimed by lease, checked again at the moment of acting, consumed in the transaction that writes the intent: several
servers on one database never fire twice. A claim is void once its server is dead, or cannot act upon it.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from paddock.clock import Clock, Pace
from paddock.errors import PaddockError, StoreUnavailable
from paddock.lifecycle.backoff import backoff_seconds
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.clock_jumps import ClockJumps
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.settings import Settings
from paddock.store import deadlines, events
from paddock.store.database import Store
from paddock.store.records import Deadline

log = structlog.get_logger(__name__)

_BATCH = 100
_CLAIM_SECONDS = 30.0
_LONGEST_DELAY = 300.0


class SandboxQueueScheduler:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        controller: Controller,
        bus: Bus,
        journal: Journal,
        nodes: Nodes,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._controller = controller
        self._bus = bus
        self._nodes = nodes
        self._server_id = server_id
        self._clock_jumps = ClockJumps(settings, clock, store, journal, server_id)
        self._in_hand: Counter[str] = Counter()
        """Sandboxes whose deadlines were claimed here and are being handled."""

    async def run(self, pace: Pace) -> None:
        """Look for due deadlines again and again. Each is handled in its own task: a slow one holds up nobody."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    claimed = await self.claim()
                except StoreUnavailable:
                    claimed = []
                except Exception:
                    log.exception("deadlines could not be claimed")
                    claimed = []
                for deadline in claimed:
                    group.create_task(self.handle(deadline))
                pause = self._settings.scheduler_interval if len(claimed) < _BATCH else 0
                if not await pace.rest(pause):
                    return

    async def tick(self) -> int:
        """One look, handled to the end; answers how many were claimed."""
        claimed = await self.claim()
        await asyncio.gather(*(self.handle(deadline) for deadline in claimed))
        return len(claimed)

    async def claim(self) -> list[Deadline]:
        await self._clock_jumps.follow()
        now = self._clock.now()
        async with self._store.write() as connection:
            claimed = await deadlines.claim(
                connection,
                self._server_id,
                now,
                now + _CLAIM_SECONDS,
                _BATCH,
                self._nodes.ids,
                server_ttl=self._settings.server_ttl,
                in_hand=self._in_hand,
            )
        self._in_hand.update(deadline.sandbox_id for deadline in claimed)
        return claimed

    async def handle(self, deadline: Deadline) -> None:
        try:
            await self._handle(deadline)
        finally:
            self._in_hand.subtract([deadline.sandbox_id])
            self._in_hand += Counter()  # only those that are still counted are kept

    async def _handle(self, deadline: Deadline) -> None:
        try:
            if deadline.warn_at is not None and self._clock.now() < deadline.due_at:
                await self._warn(deadline)
            else:
                await self._controller.expire_deadline(deadline)
        except StoreUnavailable:
            log.warning("a deadline waits for the database", sandbox_id=deadline.sandbox_id)
        except PaddockError as error:
            await self._put_off(deadline, error)
        except Exception as error:
            log.exception("a deadline could not be handled", sandbox_id=deadline.sandbox_id)
            await self._put_off(deadline, error)

    async def _warn(self, deadline: Deadline) -> None:
        data = {
            "deadline": deadline.kind.value,
            "action": deadline.action.value,
            "seconds_left": round(deadline.due_at - self._clock.now(), 3),
        }
        async with self._store.write() as connection:
            # The sandbox's row first, as everywhere: whoever locks in another order could wait for us for ever.
            await events.append(connection, deadline.sandbox_id, self._clock.now(), ("sandbox.timeout_warning", data))
            if not await deadlines.mark_warned(connection, deadline):
                await connection.rollback()
                return
        self._bus.publish(deadline.sandbox_id)

    async def _put_off(self, deadline: Deadline, error: Exception) -> None:
        """Try again later, and later again. The row only exists still if nothing was begun. Never raises: the deadlines
        of others are handled beside this one."""
        delay = max(1.0, backoff_seconds(deadline.attempts, _LONGEST_DELAY))
        log.warning("a deadline is put off", sandbox_id=deadline.sandbox_id, seconds=delay, problem=str(error))
        try:
            async with self._store.write() as connection:
                await deadlines.put_off(connection, deadline, self._clock.now() + delay)
        except StoreUnavailable:
            return  # the claim runs out by itself
        except Exception:
            log.exception("a deadline could not be put off", sandbox_id=deadline.sandbox_id)
