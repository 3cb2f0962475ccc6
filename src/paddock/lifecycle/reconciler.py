"""The reconciler: compares what the database says with what the providers have, and brings them together.

It finishes what crashes cut short, adopts machines that have no row, removes those whose row says deleted, and sets
deadlines that are missing. It deletes nothing on silence: a provider that cannot be read is left alone until it can.
What is wrong with one row, or takes long for it, stays with that row: the others are looked after all the same.
"""

from __future__ import annotations

import asyncio
import functools
import json
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
from paddock.lifecycle.backoff import backoff_seconds
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.idempotency import REMEMBERED_KEYS, REMEMBERED_SECONDS
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.planning import NEVER
from paddock.lifecycle.sandbox_names import with_free_name
from paddock.lifecycle.transitions import Transitions
from paddock.models import Isolation, State, TimeoutAction, TimeoutFrom
from paddock.providers.base import MachineInfo, MachineState, Mount, Provider
from paddock.settings import Settings
from paddock.store import deadlines, events, idempotency, mcp_servers, sandboxes, servers, services, usage
from paddock.store.database import Store
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

T = TypeVar("T")

Change = Callable[[AsyncConnection, str], Awaitable[None]]
"""To one sandbox's row, in the caller's transaction."""

_AT_ONCE = 32
_RETRIES_AT_ONCE = 32
_ACCRUE_SECONDS = 300.0
_LONGEST_BACKOFF = 60.0
_ASK_AGAIN_S = 60.0
"""How long a failed create waits for its caller. Clients try again within seconds."""


class Reconciler:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        providers: Mapping[str, Provider],
        engine: Engine,
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
        self._transitions = transitions
        self._journal = journal
        self._nodes = nodes
        self._server_id = server_id
        self._places = asyncio.Semaphore(_AT_ONCE)
        # Of their own: transitions that fail, each at the end of its time, must not hold up those that go well.
        self._retries = asyncio.Semaphore(_RETRIES_AT_ONCE)
        self._finishing: dict[str, asyncio.Task[None]] = {}

    async def run(self, pace: Pace) -> None:
        """Again and again: unfinished work soon, the whole comparison at its interval."""
        try:
            await asyncio.gather(
                _every(1.0, self._begin_finishing, pace), _every(self._settings.reconcile_interval, self.sweep, pace)
            )
        finally:
            for task in self._finishing.values():
                task.cancel()
            await asyncio.gather(*self._finishing.values(), return_exceptions=True)

    async def crashed(self, sandbox_id: str, why: str) -> None:
        """Its row says so at once, unless somebody has started it again already."""
        await _guarded(functools.partial(self._transitions.compare, sandbox_id, why), sandbox_id)

    async def run_once(self) -> None:
        await self.finish(patient=False)
        await self.sweep()

    async def finish(self, *, patient: bool = True) -> None:
        """Go on with transitions that nobody works on; after failures with growing patience."""
        await asyncio.gather(*await self._begin_finishing(patient=patient))

    async def sweep(self) -> None:
        await self._each(self._compare_with, self._providers.values())
        for step in (self._journal.recover, self._write_off, self._mend_deadlines, self._accrue, self._forget):
            await _guarded(step)

    async def _begin_finishing(self, *, patient: bool = True) -> list[asyncio.Task[None]]:
        """Without waiting: one whose provider hangs must not keep the next round from beginning."""
        now = self._clock.now()
        async with self._store.read() as connection:
            rows = await sandboxes.unfinished(
                connection, self._server_id, now, self._settings.server_ttl, node_ids=self._nodes.ids
            )
        for row in rows:
            if row.sandbox_id not in self._finishing and not (patient and _resting(row, now)) and not _asked(row, now):
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
        """A list that cannot be read raises, and nothing is concluded from it."""
        started = self._clock.now()
        unknown = {each.sandbox_id: each for each in await self._engine.call(provider.list(), "list")}
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
        """A machine that no settled row speaks of."""
        async with self._store.read() as connection:
            row = await sandboxes.get(connection, machine.sandbox_id)
        if row is None:
            await self._adopt(provider, machine)
        elif row.state is State.DELETED and (row.deleted_at or 0.0) < started:
            log.info("removing what was left of a deleted sandbox", sandbox_id=machine.sandbox_id)
            await self._engine.call(provider.delete(machine.sandbox_id), "delete")
        elif not self._nodes.reachable(row):
            log.info("a sandbox of a node that is no more is here", sandbox_id=machine.sandbox_id, node=row.node_id)
            await self._engine.place(row)

    async def _adopt(self, provider: Provider, machine: MachineInfo) -> None:
        """No row at all: the database was lost or is older than the machine. Somebody's work is in there: keep it."""
        sandbox = _from_labels(provider.name, machine, self._clock.now(), self._settings)
        if sandbox is None:
            log.warning("a machine without readable labels is left alone", sandbox_id=machine.sandbox_id)
            return
        sandbox = replace(sandbox, node_id=self._nodes.of(provider.name))
        try:
            # The labels are from its creation; what it may connect to may have been changed since.
            report = await self._engine.call(provider.egress(sandbox.sandbox_id), "egress")
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
            return  # another server was quicker
        log.info("adopted", sandbox_id=sandbox.sandbox_id, state=sandbox.state.value)

    async def _write_off(self) -> None:
        """Deletes that a node would have to carry out that was not seen for a day. Should it come back, it finds
        machines whose rows say that they are deleted."""
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
        """Write down the running time of long runners, so that a chart of today is true today."""
        async with self._store.read() as connection:
            running = await sandboxes.running_since_before(connection, self._clock.now() - _ACCRUE_SECONDS)

        async def accrue(connection: AsyncConnection, sandbox_id: str) -> None:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            if sandbox is not None and sandbox.running_since is not None:
                now = self._clock.now()  # of this transaction: before it, the clock may have been set
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
            await idempotency.forget(connection, now - REMEMBERED_SECONDS, REMEMBERED_KEYS)
            await servers.forget_stale(connection, now - max(86_400.0, 10 * self._settings.server_ttl))

    async def _change_each(self, sandbox_ids: Collection[str], change: Change) -> None:
        """All in one transaction; where one row spoils that, each in its own."""
        if not sandbox_ids:
            return
        ordered = sorted(set(sandbox_ids))  # so that two servers never wait for each other's rows crosswise
        try:
            async with self._store.write() as connection:
                for sandbox_id in ordered:
                    await change(connection, sandbox_id)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - which row it was is found out, and said, one by one
            for sandbox_id in ordered:
                await _guarded(functools.partial(self._change_one, sandbox_id, change), sandbox_id)

    async def _change_one(self, sandbox_id: str, change: Change) -> None:
        async with self._store.write() as connection:
            await change(connection, sandbox_id)

    async def _each(self, work: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
        """Many at once, but not all; the trouble of one is not the trouble of the others."""

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


def _resting(sandbox: SandboxRow, now: float) -> bool:
    """Too soon after a try that failed. A moment in the future means that the clock was set back."""
    return 0 <= now - sandbox.state_changed_at < backoff_seconds(sandbox.attempts, _LONGEST_BACKOFF)


def _asked(sandbox: SandboxRow, now: float) -> bool:
    """A create that was answered with an error is for whoever asks again with the same Idempotency-Key, for a while."""
    return (
        sandbox.state is State.CREATING and sandbox.attempts > 0 and 0 <= now - sandbox.state_changed_at < _ASK_AGAIN_S
    )


def _differs(state: State, machine: MachineInfo | None) -> bool:
    if machine is None:
        return state is not State.FAILED
    return machine.state.value != state.value


def _from_labels(provider: str, machine: MachineInfo, now: float, settings: Settings) -> SandboxRow | None:
    """Labels come back from outside: believe nothing that does not fit."""
    try:
        kept = json.loads(machine.labels["paddock.sandbox"])
        running = machine.state is MachineState.RUNNING
        sandbox = SandboxRow(
            sandbox_id=machine.sandbox_id,
            key=str(kept["key"]),
            owner_id=str(kept["owner_id"]),
            user_id=str(kept["user_id"]),
            provider=provider,
            reference=machine.reference,
            template_id=str(kept["template_id"]),
            state=State.RUNNING if running else State.PAUSED,
            reason="Adopted: the provider had it, the database did not.",
            version=1,
            lease_owner=None,
            attempts=0,
            timeout=NEVER if kept["timeout"] == NEVER else min(int(kept["timeout"]), settings.max_timeout),
            on_timeout=TimeoutAction(kept["on_timeout"]),
            max_lifetime=kept["max_lifetime"],
            cpu=float(kept["cpu"]),
            memory_mb=int(kept["memory_mb"]),
            disk_mb=int(kept["disk_mb"]),
            pids=int(kept["pids"]),
            env=dict(kept["env"]),
            metadata=dict(kept["metadata"]),
            git_url=kept["git_url"],
            egress=EgressPolicy.from_json(kept.get("egress", {})).to_json(),
            isolation=Isolation(kept["isolation"]) if kept.get("isolation") else None,
            mounts=[asdict(Mount(**mount)) for mount in kept.get("mounts", ())],
            timeout_from=TimeoutFrom(kept.get("timeout_from", TimeoutFrom.ACTIVITY)),
            auto_resume=bool(kept.get("auto_resume", True)),
            public_ports=bool(kept.get("public_ports", False)),
            host_mask=kept.get("host_mask"),
            keep_memory=bool(kept.get("keep_memory", True)),
            memory_kept=True,
            alias=kept.get("alias"),
            network=None,
            created_at=float(kept["created_at"]),
            started_at=now if running else None,
            running_since=now if running else None,
            last_activity_at=now,
            state_changed_at=now,
            deleted_at=None,
            event_seq=0,
            name=None if kept.get("name") is None else str(kept["name"]),
            retention=None if kept.get("retention") is None else int(kept["retention"]),
            ends_at=None if kept.get("ends_at") is None else float(kept["ends_at"]),
            daytona=None if kept.get("daytona") is None else dict(kept["daytona"]),
        )
    except (KeyError, ValueError, TypeError, AttributeError, PaddockError):
        return None
    return sandbox if is_sandbox_id(sandbox.sandbox_id) else None
