"""The queue of deadlines. It is stored in the database, so a timeout set before a restart expires after it.

A deadline is claimed by lease, checked again before acting, and consumed in the transaction that writes the intent, so
several servers on one database never execute it twice. A claim is void once its server is dead or cannot act on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from paddock.clock import Clock, Pace
from paddock.errors import PaddockError, StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.deadlines import backoff_seconds
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.settings import Settings
from paddock.store import deadlines, events, sandboxes
from paddock.store.database import Store
from paddock.store.records import Deadline

log = structlog.get_logger(__name__)

_BATCH = 100
_CLAIM_TTL_S = 30.0
_MAX_DELAY_S = 300.0
_CLOCK_JUMP_S = 1.0
"""A smaller drift is normal clock adjustment and shifts nothing."""


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
        self._clock_jumps = ClockJumps(clock, store, journal, nodes)
        self._in_hand: Counter[str] = Counter()
        """Number of claimed deadlines being handled here, per sandbox."""

    async def run(self, pace: Pace) -> None:
        """Poll for due deadlines. Each is handled in its own task, so that a slow one does not delay others."""
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
        """One poll, waiting until its deadlines are handled; returns how many were claimed."""
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
                now + _CLAIM_TTL_S,
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
            self._in_hand += Counter()  # adding an empty Counter drops the zero counts

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
            # Lock the sandbox's row first, as everywhere else, to avoid deadlocks.
            await events.append(connection, deadline.sandbox_id, self._clock.now(), ("sandbox.timeout_warning", data))
            if not await deadlines.mark_warned(connection, deadline):
                await connection.rollback()
                return
        self._bus.publish(deadline.sandbox_id)

    async def _put_off(self, deadline: Deadline, error: Exception) -> None:
        """Reschedule with backoff. Has no effect if the deadline was consumed. Never raises, because the deadlines of
        other sandboxes are handled alongside this one."""
        delay = max(1.0, backoff_seconds(deadline.attempts, _MAX_DELAY_S))
        log.warning("a deadline is put off", sandbox_id=deadline.sandbox_id, seconds=delay, problem=str(error))
        try:
            async with self._store.write() as connection:
                await deadlines.put_off(connection, deadline, self._clock.now() + delay)
        except StoreUnavailable:
            return  # the claim expires by itself
        except Exception:
            log.exception("a deadline could not be put off", sandbox_id=deadline.sandbox_id)


class ClockJumps:
    """Corrects deadlines when the system clock is set: by hand, by the first NTP sync, or after a machine was copied or
    suspended.

    A sandbox belongs to a node, so a server moves those of its own nodes and no others: another machine's clock was not
    set with its own. Where another server shares the node, each would move them: then only this server's idea of the
    time is corrected, and their clocks must agree by themselves, as those of all machines that work together.
    """

    def __init__(self, clock: Clock, store: Store, journal: Journal, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._journal = journal
        self._nodes = nodes

    async def follow(self) -> None:
        """Adopt the system clock's current time."""
        drift = self._clock.drift()
        if abs(drift) < _CLOCK_JUMP_S:
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
