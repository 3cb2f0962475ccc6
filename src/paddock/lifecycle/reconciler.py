"""The reconciler: compares the database with what the providers have, and resolves the differences.

It finishes interrupted transitions, adopts machines that have no row, removes those whose row says deleted, and sets
missing deadlines. It never concludes from silence: a provider that cannot be listed is skipped until it can. An error
or delay with one row affects only that row.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import TypeVar

import structlog
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock, Pace
from paddock.egress.policy import EgressPolicy
from paddock.errors import PaddockError, StoreUnavailable, Unsupported
from paddock.ids import is_sandbox_id
from paddock.lifecycle.creation import NEVER, with_free_name
from paddock.lifecycle.deadlines import backoff_seconds
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.idempotency import REMEMBERED_KEYS, REMEMBERED_S
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.transitions import Transitions
from paddock.models import State
from paddock.providers.base import MachineInfo, MachineState, Mount, Provider
from paddock.settings import Settings
from paddock.store import deadlines, events, idempotency, mcp_servers, sandboxes, servers, services, usage
from paddock.store.database import Store
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

T = TypeVar("T")

Change = Callable[[AsyncConnection, str], Awaitable[None]]
"""A change to one sandbox's row, in the caller's transaction."""

_MAX_CONCURRENT_CHECKS = 32
_MAX_CONCURRENT_RETRIES = 32
_ACCRUE_INTERVAL_S = 300.0
_MAX_BACKOFF_S = 60.0
_CLIENT_RETRY_WINDOW_S = 60.0
"""How long a failed create waits for its caller to ask again. Clients retry within seconds."""


class Reconciler:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        providers: Mapping[str, Provider],
        engine: Engine,
        calls: ProviderCalls,
        transitions: Transitions,
        journal: Journal,
        nodes: Nodes,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._providers = providers
        self._engine = engine
        self._calls = calls
        self._transitions = transitions
        self._journal = journal
        self._nodes = nodes
        self._server_id = server_id
        self._places = asyncio.Semaphore(_MAX_CONCURRENT_CHECKS)
        # Separate from the other limit: transitions that fail, each after its full timeout, must not block healthy
        # ones.
        self._retries = asyncio.Semaphore(_MAX_CONCURRENT_RETRIES)
        self._finishing: dict[str, asyncio.Task[None]] = {}

    async def run(self, pace: Pace) -> None:
        """Run until stopped: unfinished work every second, the full comparison at its interval."""
        try:
            await asyncio.gather(
                _every(1.0, self._begin_finishing, pace), _every(self._settings.reconcile_interval, self.sweep, pace)
            )
        finally:
            for task in self._finishing.values():
                task.cancel()
            await asyncio.gather(*self._finishing.values(), return_exceptions=True)

    async def crashed(self, sandbox_id: str, why: str) -> None:
        """Record at once that the sandbox has crashed, unless it was started again already."""
        await _guarded(functools.partial(self._transitions.compare, sandbox_id, why), sandbox_id)

    async def run_once(self) -> None:
        await self.finish(patient=False)
        await self.sweep()

    async def finish(self, *, patient: bool = True) -> None:
        """Continue transitions that no server works on; with backoff after failures."""
        await asyncio.gather(*await self._begin_finishing(patient=patient))

    async def sweep(self) -> None:
        await self._each(self._compare_with, self._providers.values())
        for step in (self._journal.recover, self._write_off, self._mend_deadlines, self._accrue, self._forget):
            await _guarded(step)

    async def _begin_finishing(self, *, patient: bool = True) -> list[asyncio.Task[None]]:
        """Starts tasks without waiting for them: a provider that hangs must not delay the next round."""
        now = self._clock.now()
        async with self._store.read() as connection:
            rows = await sandboxes.unfinished(
                connection, self._server_id, now, self._settings.server_ttl, node_ids=self._nodes.ids
            )
        for row in rows:
            if (
                row.sandbox_id not in self._finishing
                and not (patient and _in_backoff(row, now))
                and not _awaits_client_retry(row, now)
            ):
                task = asyncio.create_task(self._finish_one(row))
                self._finishing[row.sandbox_id] = task
                task.add_done_callback(functools.partial(self._finished, row.sandbox_id))
        return list(self._finishing.values())

    def _finished(self, sandbox_id: str, _: asyncio.Task[None]) -> None:
        self._finishing.pop(sandbox_id, None)

    async def _finish_one(self, row: SandboxRow) -> None:
        overdue = row.ends_at is not None and row.ends_at <= self._clock.now() and row.state is not State.DELETING
        work = self._transitions.expire if overdue else self._transitions.recover
        if row.state is State.CREATING and row.attempts and not overdue:
            work = self._transitions.abandon
        async with self._retries if row.attempts else self._places:
            await _guarded(functools.partial(work, row.sandbox_id), row.sandbox_id)

    async def _compare_with(self, provider: Provider) -> None:
        """Raises if the provider cannot be listed; then nothing is concluded."""
        started = self._clock.now()
        unknown = {each.sandbox_id: each for each in await self._calls.run(provider.list(), "list")}
        doubtful: list[str] = []
        after = ""
        while True:
            async with self._store.read() as connection:
                rows = await sandboxes.at_provider(connection, provider.name, after, node_ids=self._nodes.ids)
            if not rows:
                break
            for sandbox_id, state, node_id in rows:
                machine = unknown.pop(sandbox_id, None)
                if _differs(state, machine) or (machine is not None and node_id is None):
                    doubtful.append(sandbox_id)
            after = rows[-1][0]
        await self._each(self._transitions.compare, doubtful)
        await self._each(functools.partial(self._place, provider, started), unknown.values())

    async def _place(self, provider: Provider, started: float, machine: MachineInfo) -> None:
        """Handle a machine that no row listed for this provider accounts for."""
        async with self._store.read() as connection:
            row = await sandboxes.get(connection, machine.sandbox_id)
        if row is None:
            await self._adopt(provider, machine)
        elif row.state is State.DELETED and (row.deleted_at or 0.0) < started:
            log.info("removing what was left of a deleted sandbox", sandbox_id=machine.sandbox_id)
            await self._calls.run(provider.delete(machine.sandbox_id), "delete")
        elif not self._nodes.reachable(row):
            log.info("a sandbox of a node that is no more is here", sandbox_id=machine.sandbox_id, node=row.node_id)
            await self._engine.place(row)

    async def _adopt(self, provider: Provider, machine: MachineInfo) -> None:
        """Adopt a machine without a row: the database was lost or restored from an older backup. The machine holds a
        user's work, so it is kept."""
        sandbox = _from_labels(provider.name, machine, self._clock.now(), self._settings)
        if sandbox is None:
            log.warning("a machine without readable labels is left alone", sandbox_id=machine.sandbox_id)
            return
        sandbox = replace(sandbox, node_id=self._nodes.of(provider.name))
        try:
            # The labels date from the create; the egress rules may have been changed since.
            report = await self._calls.run(provider.egress(sandbox.sandbox_id), "egress")
            sandbox = replace(sandbox, egress=report.policy.to_json())
        except Unsupported:
            log.debug("adopted with the egress of its labels", sandbox_id=sandbox.sandbox_id)
        try:
            async with self._store.write() as connection:
                kept = await events.last_seq(connection, sandbox.sandbox_id)
                sandbox = await with_free_name(connection, sandbox)
                await self._engine.add(connection, replace(sandbox, event_seq=kept))
                await events.append(
                    connection, sandbox.sandbox_id, self._clock.now(), ("sandbox.adopted", {"cause": "reconcile"})
                )
        except IntegrityError:
            return  # another server was faster
        log.info("adopted", sandbox_id=sandbox.sandbox_id, state=sandbox.state.value)

    async def _write_off(self) -> None:
        """Finish deletes whose node was not seen for a day. If the node comes back, it finds machines whose rows say
        deleted."""
        if (ours := self._nodes.ids) is None:
            return
        async with self._store.read() as connection:
            rows = await sandboxes.deleting_elsewhere(connection, ours)
        for row in rows:
            if self._nodes.lost(row):
                log.warning("a sandbox of a lost node counts as deleted", sandbox_id=row.sandbox_id, node=row.node_id)
                await _guarded(functools.partial(self._engine.write_off, row), row.sandbox_id)

    async def _mend_deadlines(self) -> None:
        now = self._clock.now()
        async with self._store.read() as connection:
            bare = await deadlines.missing(connection)
            bare += await deadlines.too_far(connection, now, self._settings.max_timeout)

        async def arm(connection: AsyncConnection, sandbox_id: str) -> None:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            if sandbox is not None:
                await self._engine.arm(connection, sandbox)

        await self._change_each(bare, arm)

    async def _accrue(self) -> None:
        """Write down the running time of long-running sandboxes, so that today's usage charts are current."""
        async with self._store.read() as connection:
            running = await sandboxes.running_since_before(connection, self._clock.now() - _ACCRUE_INTERVAL_S)

        async def accrue(connection: AsyncConnection, sandbox_id: str) -> None:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            if sandbox is not None and sandbox.running_since is not None:
                now = self._clock.now()  # read inside the write transaction: the clock may have been set before it
                await usage.add_running(connection, sandbox, sandbox.running_since, now)
                await sandboxes.patch(connection, sandbox_id, running_since=now)

        await self._change_each(running, accrue)

    async def _forget(self) -> None:
        now = self._clock.now()
        crowded: dict[str, int] = {}
        if self._settings.user_events_kept:
            async with self._store.read() as connection:
                crowded = await events.crowded(connection, self._settings.user_events_kept)
        async with self._store.write() as connection:
            gone = await sandboxes.purge_deleted(
                connection, now - self._settings.deleted_retention, self._settings.deleted_kept
            )
            await events.forget(connection, gone)
            if self._settings.events_kept:
                await events.keep_latest(connection, self._settings.events_kept)
            for owner_id, kept in crowded.items():
                await events.keep_latest(connection, kept, [owner_id])
            await services.forget(connection, gone)
            await mcp_servers.forget(connection, gone)
            await idempotency.forget(connection, now - REMEMBERED_S, REMEMBERED_KEYS)
            await servers.forget_stale(connection, now - max(86_400.0, 10 * self._settings.server_ttl))

    async def _change_each(self, sandbox_ids: Collection[str], change: Change) -> None:
        """Change all rows in one transaction; if one row fails, each in its own."""
        if not sandbox_ids:
            return
        ordered = sorted(set(sandbox_ids))  # ordered, so that two servers cannot deadlock on each other's rows
        try:
            async with self._store.write() as connection:
                for sandbox_id in ordered:
                    await change(connection, sandbox_id)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - the failing row is found and logged one by one
            for sandbox_id in ordered:
                await _guarded(functools.partial(self._change_one, sandbox_id, change), sandbox_id)

    async def _change_one(self, sandbox_id: str, change: Change) -> None:
        async with self._store.write() as connection:
            await change(connection, sandbox_id)

    async def _each(self, work: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
        """Run with limited concurrency; an error with one does not affect the others."""

        async def one(thing: T) -> None:
            async with self._places:
                await _guarded(functools.partial(work, thing))

        await asyncio.gather(*(one(thing) for thing in things))


async def _every(seconds: float, work: Callable[[], Awaitable[object]], pace: Pace) -> None:
    while True:
        await _guarded(work)
        if not await pace.rest(seconds):
            return


async def _guarded(work: Callable[[], Awaitable[object]], sandbox_id: str | None = None) -> None:
    try:
        await work()
    except PaddockError as error:
        log.warning("reconciling has to wait", sandbox_id=sandbox_id, problem=str(error)[:300])
    except Exception:
        log.exception("reconciling met a defect", sandbox_id=sandbox_id)


def _in_backoff(sandbox: SandboxRow, now: float) -> bool:
    """Too soon after a failed attempt. A time in the future means that the clock was set back."""
    return 0 <= now - sandbox.state_changed_at < backoff_seconds(sandbox.attempts, _MAX_BACKOFF_S)


def _awaits_client_retry(sandbox: SandboxRow, now: float) -> bool:
    """A create that was answered with an error is kept for a while for a retry with the same Idempotency-Key."""
    return (
        sandbox.state is State.CREATING
        and sandbox.attempts > 0
        and 0 <= now - sandbox.state_changed_at < _CLIENT_RETRY_WINDOW_S
    )


def _differs(state: State, machine: MachineInfo | None) -> bool:
    if machine is None:
        return state is not State.FAILED
    return machine.state.value != state.value


def _from_labels(provider: str, machine: MachineInfo, now: float, settings: Settings) -> SandboxRow | None:
    """Labels come from outside Paddock and are validated like any input."""
    running = machine.state is MachineState.RUNNING
    try:
        sandbox = sandboxes.from_labels(
            machine.labels,
            sandbox_id=machine.sandbox_id,
            provider=provider,
            reference=machine.reference,
            state=State.RUNNING if running else State.PAUSED,
            reason="Adopted: the provider had it, the database did not.",
            started_at=now if running else None,
            running_since=now if running else None,
            last_activity_at=now,
            state_changed_at=now,
        )
        sandbox = replace(
            sandbox,
            timeout=NEVER if sandbox.timeout == NEVER else min(sandbox.timeout, settings.max_timeout),
            egress=EgressPolicy.from_json(sandbox.egress).to_json(),
            mounts=[asdict(Mount(**mount)) for mount in sandbox.mounts],
        )
    except (KeyError, ValueError, TypeError, AttributeError, PaddockError):
        return None
    return sandbox if is_sandbox_id(sandbox.sandbox_id) else None
