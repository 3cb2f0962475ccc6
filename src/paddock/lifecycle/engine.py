"""The engine: carries a sandbox through one transition so that no crash can lose it.

Always three steps: write the intent (with the deadline that caused it, if any), call the provider, write the outcome.
Each write is one transaction. If the process dies between two of them, the row states the intent, and the server that
finds it calls ``drive`` again; this is safe because providers are idempotent by sandbox id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock
from paddock.errors import (
    Conflict,
    InsufficientStorage,
    Invalid,
    PaddockError,
    ProviderRefused,
    ProviderUnavailable,
    SandboxNotFound,
    StoreUnavailable,
    TemplateNotFound,
    TooManyRequests,
    Unsupported,
)
from paddock.lifecycle import states
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.deadlines import deadlines_of
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.pool import Pool
from paddock.lifecycle.provider_calls import ProviderCalls, spec_of
from paddock.lifecycle.states import CREATE, DELETE, OPERATIONS, PAUSE, Operation
from paddock.models import State
from paddock.redaction import has_credentials, without_credentials
from paddock.settings import Settings
from paddock.store import deadlines, events, idempotency, mcp_servers, sandboxes, services, usage
from paddock.store.database import OUTCOME_PATIENCE_S, Store
from paddock.store.records import Deadline, EventRow, SandboxRow

log = structlog.get_logger(__name__)

Guard = Callable[[AsyncConnection, SandboxRow], Awaitable[None]]
"""Checks the row inside the transaction that is about to change it, and raises if it must not change."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

_CREATE_ATTEMPTS = 8
_MAX_ATTEMPTS = 1000
"""Where the counter of failed attempts stops. Retries go on without limit."""
_MAX_REASON = 500


class Engine:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        calls: ProviderCalls,
        pool: Pool,
        bus: Bus,
        nodes: Nodes,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._calls = calls
        self._pool = pool
        self._bus = bus
        self._nodes = nodes
        self._server_id = server_id
        self._clone_urls: dict[str, str] = {}
        """Clone URLs with passwords, kept in memory only while their create is under way here."""
        self._given_up: set[str] = set()

    async def begin(
        self,
        sandbox: SandboxRow,
        operation: Operation,
        *,
        cause: str,
        deadline: Deadline | None = None,
        guard: Guard | None = None,
        values: Mapping[str, Any] = NOTHING,
    ) -> SandboxRow | None:
        """Write the intent, and ``values`` beside it. None if the row, or the deadline that asks for it, has changed
        since it was read."""
        data: dict[str, Any] = {"cause": cause}

        async def write() -> SandboxRow | None:
            async with self._store.write() as connection:
                current = await sandboxes.get(connection, sandbox.sandbox_id, lock=True)
                if current is None or current.version != sandbox.version:
                    return None
                if deadline is not None:
                    if not await deadlines.consume(connection, deadline, self._clock.now()):
                        return None
                    data.update({"deadline": deadline.kind.value, "generation": deadline.generation})
                if guard is not None:
                    await guard(connection, current)
                if states.unfinished(current.state):
                    data["overrides"] = current.state.value
                # No server here works on a transition that another node has to carry out.
                lease = self._server_id if self._nodes.here(current) else None
                reason = states.reason_of(cause)
                return await self._enter(
                    connection, current, operation.via, data, lease_owner=lease, reason=reason, **values
                )

        begun = await (self._store.write_freeing(write) if operation in (PAUSE, DELETE) else write())
        if begun is not None:
            self._bus.changed(begun)
        return begun

    async def take_over(self, sandbox: SandboxRow) -> SandboxRow | None:
        """Take the lease of a transition that no server works on. None if another server was faster."""
        async with self._store.write() as connection:
            if await sandboxes.change(connection, sandbox, lease_owner=self._server_id) is None:
                return None
        return replace(sandbox, lease_owner=self._server_id, version=sandbox.version + 1)

    async def drive(self, sandbox: SandboxRow, *, once: bool = False) -> SandboxRow:
        """Finish the transition that the row is in; the caller must hold its lease. ``once``: a create whose caller is
        told of any failure and cannot ask for the same sandbox again, so that it must not be continued."""
        operation = OPERATIONS[sandbox.state]
        if operation is CREATE and sandbox.sandbox_id in self._given_up:
            await self._undo_create(sandbox, reason := "Its create was answered with an error.")
            raise ProviderRefused(reason)
        try:
            reference = await self._act(operation, sandbox)
        except SandboxNotFound:
            if operation is DELETE:
                return await self._finish(sandbox, State.DELETED, {})
            if self._nodes.unplaced(sandbox):
                await self._release(sandbox, error := self._nodes.elsewhere(sandbox))
                raise error from None
            await self._finish(sandbox, State.FAILED, {}, reason="The provider no longer has this sandbox.")
            raise
        except (ProviderRefused, TemplateNotFound, TooManyRequests, InsufficientStorage, Unsupported, Invalid) as error:
            await self._give_way(sandbox, operation, error)
            raise
        except PaddockError as error:
            await self._release(sandbox, error, once=once)
            raise
        except Exception as error:
            log.exception("provider defect", sandbox_id=sandbox.sandbox_id, operation=operation.name)
            await self._release(sandbox, error, once=once)
            raise ProviderUnavailable(f"The provider failed in a way it should not: {error}") from error
        try:
            values: dict[str, Any] = {"reference": reference} if reference else {}
            if sandbox.node_id is None:
                values["node_id"] = self._nodes.of(sandbox.provider)
            done = await self._finish(sandbox, operation.done, values)
        except StoreUnavailable as error:
            if operation is CREATE:  # the caller hears that there is none: then there must be none
                await self.remove_machine(sandbox)
                raise
            raise _unwritten(operation, error) from error
        if done.state in states.GONE and operation is not DELETE:
            await self.remove_machine(sandbox)
        return done

    async def write_off(self, sandbox: SandboxRow) -> None:
        """Mark a sandbox in deletion as deleted whose node is lost."""
        taken = await self.take_over(sandbox)
        if taken is not None:
            await self._finish(taken, State.DELETED, {})

    async def place(self, sandbox: SandboxRow) -> None:
        """Record that the sandbox is on this node, where its provider has it."""
        async with self._store.write() as connection:
            await sandboxes.patch(connection, sandbox.sandbox_id, node_id=self._nodes.of(sandbox.provider))

    def give_up(self, sandbox_id: str) -> None:
        """Its caller was told that the create failed: undo the sandbox as soon as its row can be written."""
        self._given_up.add(sandbox_id)

    async def correct(
        self, sandbox: SandboxRow, state: State, reason: str, event: str | None = None
    ) -> SandboxRow | None:
        """Set the row to the state that the provider reports. None if the row has changed since it was read."""
        async with self._store.write() as connection:
            current = await sandboxes.get(connection, sandbox.sandbox_id, lock=True)
            if current is None or current.version != sandbox.version:
                return None
            data = {"cause": "reconcile", "reason": reason}
            if event is not None:
                await events.append(connection, sandbox.sandbox_id, self._clock.now(), (event, data))
            corrected = await self._enter(connection, current, state, data, lease_owner=None, reason=reason)
        self._bus.changed(corrected)
        return corrected

    async def add(self, connection: AsyncConnection, sandbox: SandboxRow, git_url: str | None = None) -> None:
        """Insert the sandbox's first row, with the deadlines of its state. ``git_url``: the URL with the password,
        which the row must not hold."""
        seq = sandbox.event_seq + 1
        await sandboxes.add(connection, replace(sandbox, event_seq=seq))
        name = f"sandbox.{sandbox.state.value}"
        await events.put(connection, EventRow(sandbox.sandbox_id, seq, name, self._clock.now(), {"cause": "request"}))
        await self.arm(connection, sandbox)
        if git_url and git_url != sandbox.git_url:
            self._clone_urls[sandbox.sandbox_id] = git_url

    async def arm(
        self, connection: AsyncConnection, sandbox: SandboxRow, now: float | None = None, *, woken: bool = False
    ) -> None:
        """Set the deadlines of the sandbox's state."""
        for each in self.deadlines_of(sandbox, self._clock.now() if now is None else now, woken=woken):
            await deadlines.put(connection, each.sandbox_id, each.kind, each.action, each.due_at, each.warn_at)

    def deadlines_of(self, sandbox: SandboxRow, now: float, *, woken: bool = False) -> list[Deadline]:
        """The deadlines of a sandbox that enters its current state now."""
        return deadlines_of(self._settings, sandbox, now, woken=woken)

    async def _enter(
        self,
        connection: AsyncConnection,
        sandbox: SandboxRow,
        state: State,
        data: Mapping[str, Any],
        *,
        lease_owner: str | None,
        reason: str | None,
        **values: Any,
    ) -> SandboxRow:
        """Every change of state goes through here: row, usage, deadlines and event in the caller's transaction."""
        states.check(sandbox.state, state)
        self._clone_urls.pop(sandbox.sandbox_id, None)
        now = self._clock.now()
        values |= {
            "state": state,
            "reason": reason,
            "lease_owner": lease_owner,
            "attempts": 0,
            "state_changed_at": now,
            "running_since": now if state is State.RUNNING else None,
        }
        if state is State.RUNNING:
            values |= {"started_at": now, "last_activity_at": now}
        if state is State.DELETED:
            values |= {"deleted_at": now, **_without_variables(sandbox)}
        if sandbox.git_url and has_credentials(sandbox.git_url):  # a row from a version that stored credentials
            values |= {"git_url": without_credentials(sandbox.git_url)}
        seq = await sandboxes.change(connection, sandbox, with_event=True, **values)
        if seq is None:
            raise TransitionLost(sandbox.sandbox_id)
        if state is State.DELETED:
            await mcp_servers.clear(connection, sandbox.sandbox_id)  # they may hold secrets
            await services.clear(connection, sandbox.sandbox_id)
        if sandbox.running_since is not None:
            await usage.add_running(connection, sandbox, sandbox.running_since, now)
        entered = replace(sandbox, version=sandbox.version + 1, event_seq=seq, **values)
        if not states.unfinished(sandbox.state):
            await deadlines.remove(connection, sandbox.sandbox_id)  # a transitional state has no deadlines
        await self.arm(connection, entered, now, woken=sandbox.state is State.RESUMING)
        await events.put(connection, EventRow(sandbox.sandbox_id, seq, f"sandbox.{state.value}", now, data))
        return entered

    async def _finish(
        self, sandbox: SandboxRow, state: State, values: dict[str, Any], reason: str | None = None
    ) -> SandboxRow:
        """Write the outcome. If another server took this transition over meanwhile, returns its row instead."""
        if reason is None and state in {State.PAUSED, State.DELETED}:
            reason = states.begun_because(sandbox)

        async def finish() -> SandboxRow:
            async with self._store.write() as connection:
                return await self._enter(connection, sandbox, state, {}, lease_owner=None, reason=reason, **values)

        try:
            freeing = state in (State.PAUSED, State.DELETED)
            done = await (self._store.write_freeing(finish, OUTCOME_PATIENCE_S) if freeing else finish())
        except TransitionLost:
            async with self._store.read() as connection:
                current = await sandboxes.get(connection, sandbox.sandbox_id)
            if current is None:
                raise SandboxNotFound.by_id(sandbox.sandbox_id) from None
            return current
        self._bus.changed(done)
        return done

    async def _give_way(self, sandbox: SandboxRow, operation: Operation, error: PaddockError) -> None:
        """The provider definitely refused: return to the previous state, or undo a create."""
        if operation is DELETE:
            await self._release(sandbox, error)
            return
        reason = f"{operation.name} failed: {error.message}"
        if operation is not CREATE:
            await self._finish(sandbox, operation.refused, {}, reason=reason)
            return
        if isinstance(error, InsufficientStorage):  # the same request may succeed once there is room
            async with self._store.write() as connection:
                await idempotency.release(connection, sandbox.sandbox_id)
        await self._undo_create(sandbox, reason)

    async def remove_machine(self, sandbox: SandboxRow) -> None:
        """Delete the machine without changing the row, because another server has deleted it meanwhile or it cannot be
        written."""
        try:
            await self._calls.carry_out(DELETE, sandbox)
        except PaddockError as problem:
            log.warning(
                "a deleted sandbox is left to the next sweep", sandbox_id=sandbox.sandbox_id, problem=str(problem)
            )

    async def abandon(self, sandbox: SandboxRow) -> None:
        """Undo a create that was answered with an error and not requested again."""
        taken = await self.take_over(sandbox)
        if taken is not None:
            await self._undo_create(taken, taken.reason or "create failed")

    async def _begin_undoing(self, sandbox: SandboxRow, reason: str, *, lease_owner: str | None) -> SandboxRow | None:
        """Write the intent to delete. None if another intent was written meanwhile."""
        reason = reason[:_MAX_REASON]
        try:
            async with self._store.write() as connection:
                undoing = await self._enter(
                    connection, sandbox, State.DELETING, {"reason": reason}, lease_owner=lease_owner, reason=reason
                )
        except TransitionLost:
            return None
        self._bus.changed(undoing)
        return undoing

    async def _undo_create(self, sandbox: SandboxRow, reason: str) -> None:
        undoing = await self._begin_undoing(sandbox, reason, lease_owner=self._server_id)
        if undoing is None:
            return  # it is being deleted already
        try:
            await self.drive(undoing)
        except StoreUnavailable:
            raise
        except PaddockError as problem:
            # The caller gets the error of the create; the row stays `deleting` and the reconciler retries.
            log.warning("undo of a create must be tried again", sandbox_id=sandbox.sandbox_id, problem=str(problem))

    async def _release(self, sandbox: SandboxRow, error: BaseException, *, once: bool = False) -> None:
        """The outcome is unknown. Keep the intent for the reconciler, which retries with growing delays."""
        attempts = min(max(0, sandbox.attempts) + 1, _MAX_ATTEMPTS)
        reason = f"{states.begun_because(sandbox) or ''} {states.unfinished_text(sandbox)}{error}".strip()[:_MAX_REASON]
        if once:
            await self._begin_undoing(sandbox, f"create failed: {error}", lease_owner=None)  # the reconciler continues
            return
        if sandbox.state is State.CREATING and attempts >= _CREATE_ATTEMPTS:
            await self._undo_create(sandbox, f"create failed {attempts} times: {error}")
            return
        async with self._store.write() as connection:
            await sandboxes.change(
                connection,
                sandbox,
                lease_owner=None,
                attempts=attempts,
                reason=reason,
                state_changed_at=self._clock.now(),
            )
        self._bus.publish(sandbox.sandbox_id)

    async def _act(self, operation: Operation, sandbox: SandboxRow) -> str | None:
        """Carry the operation out at the provider. Returns the reference of a machine that was made."""
        if operation is not CREATE:
            await self._calls.carry_out(operation, sandbox)
            return None
        provider, spec = self._calls.of(sandbox), spec_of(sandbox)
        with self._pool.serving(provider, spec):
            made = await self._calls.run(provider.create(spec), "create")
        if sandbox.git_url:
            await self._calls.clone(sandbox, self._clone_urls.get(sandbox.sandbox_id, sandbox.git_url))
        return made.reference


def _unwritten(operation: Operation, error: StoreUnavailable) -> StoreUnavailable:
    """The intent stands, so the reconciler writes the outcome: it does the same again, which changes nothing."""
    return type(error)(
        f"The sandbox is {operation.done.value}, but the database cannot be written, so its state says "
        f"{operation.via.value!r} until it can be. Nothing needs to be done again.",
        retry_after=error.retry_after,
    )


def _without_variables(sandbox: SandboxRow) -> dict[str, Any]:
    """Clears environment variables, also those that a facade stores among its settings."""
    settings = sandbox.facade_settings
    return {"env": {}} | ({} if settings is None else {"facade_settings": {**settings, "env": {}}})


class TransitionLost(Conflict):
    """Another server has taken this transition over, so this server's outcome is void."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"Another server has taken over the work on sandbox {sandbox_id!r}.", retry_after=1)
