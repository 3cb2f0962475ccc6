"""The controller: entry point of every request about a sandbox.

It checks ownership and what the request may do; how a sandbox gets from one state to another is in ``transitions``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.accounts.accounts import Principal
from paddock.clock import Clock
from paddock.errors import Asleep, Conflict, SandboxNotFound
from paddock.ids import is_sandbox_id, is_sandbox_key
from paddock.lifecycle.activity import Activity, RowCache
from paddock.lifecycle.creation import NATIVE, CreateVariant, SandboxCreator, check_timeout
from paddock.lifecycle.deadlines import due
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.states import DELETE, PAUSE, RESUME
from paddock.lifecycle.transitions import Transitions, cannot
from paddock.machine.base import Machine
from paddock.models import CreateSandbox, State, TimeoutAction, TimeoutFrom
from paddock.settings import Settings
from paddock.store import deadlines, listing, sandboxes
from paddock.store.database import Store
from paddock.store.listing import ListingFilter
from paddock.store.records import Deadline, DeadlineKind, Page, SandboxRow

_ATTACH_TRIES = 5


@dataclass(frozen=True, slots=True)
class SandboxView:
    """What every response about a sandbox needs."""

    sandbox: SandboxRow
    expires: Deadline | None
    new: bool = False
    """Created by this request."""


@dataclass(frozen=True, slots=True)
class ActiveSandbox:
    """A running sandbox, kept awake while its context is open."""

    sandbox: SandboxRow
    machine: Machine
    _journal: Journal

    async def record(
        self,
        *,
        commands: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        event: tuple[str, Mapping[str, Any]] | None = None,
        once: str | None = None,
    ) -> None:
        """Count this use durably, with an optional event. ``once``: see :meth:`Journal.record`."""
        await self._journal.record(
            self.sandbox, commands=commands, bytes_in=bytes_in, bytes_out=bytes_out, event=event, once=once
        )


class Controller:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        *,
        creator: SandboxCreator,
        engine: Engine,
        calls: ProviderCalls,
        transitions: Transitions,
        journal: Journal,
        activity: Activity,
        row_cache: RowCache,
        nodes: Nodes,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._creator = creator
        self._engine = engine
        self._calls = calls
        self._transitions = transitions
        self._journal = journal
        self._activity = activity
        self._row_cache = row_cache
        self._nodes = nodes
        self.templates, self.templates_by_provider = creator.templates.all, creator.templates.by_provider
        self.has_template = creator.templates.has
        """Also for templates that no provider lists: a vendor account may have more than are known here."""

    # Reading

    async def get(self, who: Principal, sandbox_id: str) -> SandboxView:
        async with self._store.read() as connection:
            sandbox = await self._find(connection, who, sandbox_id)
            return await self._seen_in(connection, sandbox)

    async def list(
        self,
        who: Principal,
        *,
        user_id: str | None = None,
        states: Sequence[State] | None = None,
        cursor: str | None = None,
        limit: int = 100,
        here: bool = False,
    ) -> Page:
        """``here``: only sandboxes that this server can act on."""
        wanted = ListingFilter(
            owner_id=None if who.is_admin else who.user_id,
            user_id=user_id,
            states=states or None,
            node_ids=self._nodes.ids if here else None,
        )
        return await self.page(wanted, cursor=cursor, limit=limit)

    async def page(self, wanted: ListingFilter, *, cursor: str | None, limit: int) -> Page:
        """For callers that limit the filter to what the user may see."""
        async with self._store.read() as connection:
            found, next_cursor = await listing.page(connection, wanted, cursor=cursor, limit=limit)
            expires = await deadlines.next_of(connection, [sandbox.sandbox_id for sandbox in found])
        return Page(found, expires, next_cursor)

    async def count(self, wanted: ListingFilter) -> int:
        """Over all pages."""
        async with self._store.read() as connection:
            return await listing.count(connection, wanted)

    # Changing

    async def create(
        self,
        who: Principal,
        request: CreateSandbox,
        idempotency_key: str | None = None,
        variant: CreateVariant = NATIVE,
    ) -> SandboxView:
        created, new = await self._creator.create(who, request, idempotency_key, variant)
        return self._seen_new(created) if new else await self._seen(created)

    async def connect(self, who: Principal, sandbox_id: str, timeout: int | None = None) -> SandboxView:
        """Resume the sandbox if it is paused, and restart its timeout."""
        check_timeout(self._settings, timeout)
        await self._awake(who, sandbox_id)
        return await self._retime(who, sandbox_id, timeout, None)

    async def set_timeout(
        self, who: Principal, sandbox_id: str, timeout: int, action: TimeoutAction | None = None
    ) -> SandboxView:
        """Store the timeout and count it from now. For a paused sandbox it applies from its resume."""
        check_timeout(self._settings, timeout)
        await self._visible(who, sandbox_id)
        return await self._retime(who, sandbox_id, timeout, action)

    async def pause(self, who: Principal, sandbox_id: str) -> SandboxView:
        await self._visible(who, sandbox_id)
        await self._journal.settled(sandbox_id)  # earlier use is recorded before the pause
        return await self._seen(await self._transitions.reach(sandbox_id, PAUSE))

    async def resume(self, who: Principal, sandbox_id: str) -> SandboxView:
        """Alias of ``connect``."""
        return await self.connect(who, sandbox_id)

    async def delete(self, who: Principal, sandbox_id: str) -> None:
        """Idempotent: deleting a deleted sandbox succeeds."""
        await self._visible(who, sandbox_id)
        await self._journal.settled(sandbox_id)
        await self._transitions.reach(sandbox_id, DELETE)
        self._journal.forget(sandbox_id)

    @asynccontextmanager
    async def use(self, who: Principal, sandbox_id: str) -> AsyncIterator[ActiveSandbox]:
        """Work in the sandbox: resumes it if paused, and postpones the idle deadline while the context is open."""
        async with self._inside(await self._visible(who, sandbox_id), wake=True) as use:
            yield use

    @asynccontextmanager
    async def use_made(self, who: Principal, made: SandboxView) -> AsyncIterator[ActiveSandbox]:
        """Like ``use``, for the request that created the sandbox. A row just written is not read again; otherwise it
        may have changed since."""
        sandbox = made.sandbox if made.new else await self._visible(who, made.sandbox.sandbox_id)
        async with self._inside(sandbox, wake=True) as use:
            yield use

    async def by_key(self, key: str) -> SandboxRow:
        """The sandbox with this DNS-safe key. For the gateway, where the key in a host name selects the sandbox and the
        permission is checked by other means."""
        sandbox = await self._row_cache.by_key(key) if is_sandbox_key(key) else None
        if sandbox is None:
            raise SandboxNotFound.by_id(key)
        return sandbox

    async def by_name(self, who: Principal, name: str) -> SandboxRow | None:
        """The caller's own sandbox with this name that is not deleted."""
        async with self._store.read() as connection:
            return await sandboxes.get_by_name(connection, who.user_id, name)

    async def keys(self) -> Sequence[str]:
        """DNS-safe keys of all sandboxes that are not deleted, for callers that are authorized otherwise."""
        async with self._store.read() as connection:
            return await sandboxes.keys(connection)

    @asynccontextmanager
    async def use_key(self, key: str, *, wake: bool) -> AsyncIterator[ActiveSandbox]:
        """Like ``use``, for callers that are authorized already. Raises SandboxNotFound for a sandbox that is deleted
        or failed, :class:`Asleep` for a paused one if ``wake`` is false or its settings forbid automatic resume."""
        sandbox = await self.by_key(key)
        if sandbox.state in {State.DELETING, State.DELETED, State.FAILED}:
            raise SandboxNotFound.by_id(key)
        async with self._inside(sandbox, wake=wake) as use:
            yield use

    async def peek(self, who: Principal, sandbox_id: str) -> Machine:
        """The machine, for read-only access: does not resume the sandbox and does not count as activity."""
        sandbox = await self._visible(who, sandbox_id)
        if sandbox.state is not State.RUNNING:
            raise Conflict(
                f"Sandbox {sandbox_id!r} is {sandbox.state.value}; only a running one can be looked into.",
                details={"sandbox_id": sandbox_id, "status": sandbox.state.value},
            )
        return await self._calls.attach(sandbox)

    async def expire_deadline(self, deadline: Deadline) -> bool:
        """Execute a due deadline, unless the sandbox is in use. False if the deadline was void."""
        using = self._activity.inside(deadline.sandbox_id)
        pushed_out = using is not None and using.timeout_from is TimeoutFrom.ACTIVITY
        if using is not None and pushed_out and deadline.kind is DeadlineKind.IDLE:
            await self._journal.touch(using, now=True)
            return False
        await self._journal.settled(deadline.sandbox_id)
        return await self._transitions.expire_deadline(deadline)

    # Internal

    async def _visible(self, who: Principal, sandbox_id: str) -> SandboxRow:
        return _may_see(who, sandbox_id, await self._row_cache.get(sandbox_id) if is_sandbox_id(sandbox_id) else None)

    async def _find(self, connection: AsyncConnection, who: Principal, sandbox_id: str) -> SandboxRow:
        return _may_see(
            who, sandbox_id, await sandboxes.get(connection, sandbox_id) if is_sandbox_id(sandbox_id) else None
        )

    @asynccontextmanager
    async def _inside(self, sandbox: SandboxRow, *, wake: bool) -> AsyncIterator[ActiveSandbox]:
        sandbox = await self._woken(sandbox, wake=wake)
        with self._activity.enter(sandbox):
            active = max(sandbox.last_activity_at, self._journal.last_written(sandbox.sandbox_id))
            left = active + sandbox.timeout - self._clock.now()
            pushed_out = sandbox.timeout_from is TimeoutFrom.ACTIVITY
            await self._journal.touch(sandbox, now=pushed_out and left < sandbox.timeout / 2)
            machine = await self._attach(sandbox, wake=wake)
            yield ActiveSandbox(sandbox, machine, self._journal)

    async def _awake(self, who: Principal, sandbox_id: str) -> SandboxRow:
        """For an explicit request to resume."""
        return await self._running(await self._visible(who, sandbox_id))

    async def _woken(self, sandbox: SandboxRow, *, wake: bool) -> SandboxRow:
        """For use of the sandbox. Waits for a pause under way, to know its outcome."""
        self._nodes.require(sandbox)  # before the request counts as activity
        if sandbox.state is State.PAUSING:
            sandbox = await self._transitions.settled(sandbox.sandbox_id)
        if sandbox.state is State.PAUSED and not (wake and sandbox.auto_resume and sandbox.memory_kept):
            raise Asleep(
                f"Sandbox {sandbox.sandbox_id!r} is paused, and using it does not wake it. Connect to it first.",
                details={"sandbox_id": sandbox.sandbox_id, "status": sandbox.state.value},
            )
        return await self._running(sandbox)

    async def _running(self, sandbox: SandboxRow) -> SandboxRow:
        if sandbox.state is State.RUNNING:
            return sandbox
        if sandbox.state is State.DELETED:
            raise cannot(sandbox, RESUME.name)
        return await self._transitions.reach(sandbox.sandbox_id, RESUME)

    async def _attach(self, sandbox: SandboxRow, *, wake: bool) -> Machine:
        """The machine. If the provider disagrees with the row (the host was restarted, or the sandbox was paused
        meanwhile), the row is corrected and the attach retried."""
        for left in reversed(range(_ATTACH_TRIES)):
            if (machine := self._calls.of(sandbox).attached_machine(sandbox.sandbox_id)) is not None:
                return machine
            try:
                return await self._calls.attach(sandbox)
            except (SandboxNotFound, Conflict):
                if not left:
                    raise
                await self._transitions.compare(sandbox.sandbox_id)
                current = await self._row_cache.get(sandbox.sandbox_id)
                if current is None:
                    raise
                sandbox = await self._woken(current, wake=wake)
        raise AssertionError("unreachable")

    async def _retime(
        self, who: Principal, sandbox_id: str, timeout: int | None, action: TimeoutAction | None
    ) -> SandboxView:
        async with self._store.write() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            now = self._clock.now()  # read inside the write transaction: the clock may have been set before it
            if sandbox is None or sandbox.state in {State.DELETING, State.DELETED}:
                raise SandboxNotFound.by_id(sandbox_id)
            sandbox = replace(
                sandbox,
                timeout=timeout or sandbox.timeout,
                on_timeout=action or sandbox.on_timeout,
                last_activity_at=now,
            )
            await sandboxes.patch(
                connection, sandbox_id, timeout=sandbox.timeout, on_timeout=sandbox.on_timeout, last_activity_at=now
            )
            if sandbox.state is State.RUNNING:
                idle = due(now, sandbox.timeout)
                await deadlines.put(connection, sandbox_id, DeadlineKind.IDLE, sandbox.on_timeout, *idle)
            return await self._seen_in(connection, sandbox)

    def _seen_new(self, sandbox: SandboxRow) -> SandboxView:
        """Built from the row just written, without another read."""
        written = self._engine.deadlines_of(sandbox, sandbox.state_changed_at)
        return SandboxView(sandbox, min(written, key=lambda deadline: deadline.due_at, default=None), new=True)

    async def _seen(self, sandbox: SandboxRow) -> SandboxView:
        async with self._store.read() as connection:
            return await self._seen_in(connection, sandbox)

    async def _seen_in(self, connection: AsyncConnection, sandbox: SandboxRow) -> SandboxView:
        return SandboxView(sandbox, await deadlines.next_of_one(connection, sandbox.sandbox_id))


def _may_see(who: Principal, sandbox_id: str, sandbox: SandboxRow | None) -> SandboxRow:
    """The row if it exists and the caller may see it; else SandboxNotFound."""
    if sandbox is None or not (who.is_admin or sandbox.owner_id == who.user_id):
        raise SandboxNotFound.by_id(sandbox_id)
    return sandbox
