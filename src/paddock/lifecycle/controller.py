"""The controller: the one place that owns each sandbox's life.

Every request about a sandbox comes through here. It checks whose the sandbox is, waits for its turn, and lets the
engine do the transition in a task of its own, so that a client that hangs up does not cut short what it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from paddock.clock import Clock, iso
from paddock.errors import (
    Conflict,
    Invalid,
    PaddockError,
    ProviderRefused,
    SandboxBusy,
    SandboxFailed,
    SandboxGone,
    SandboxNotFound,
    ShuttingDown,
    TemplateNotFound,
)
from paddock.ids import is_sandbox_id, new_sandbox_id, new_sandbox_key
from paddock.lifecycle import states
from paddock.lifecycle.accounts import Accounts, Principal
from paddock.lifecycle.activity import Activity
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.engine import Engine, due
from paddock.lifecycle.idempotency import Idempotency, fingerprint
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.states import DELETE, PAUSE, RESUME, Operation
from paddock.lifecycle.turns import Turns, busy
from paddock.machine.base import Machine
from paddock.models import CreateSandbox, State, TimeoutAction
from paddock.providers.base import MachineState, Provider
from paddock.settings import Settings
from paddock.store import deadlines, sandboxes, servers
from paddock.store.database import Store
from paddock.store.records import Deadline, DeadlineKind, Page, Sandbox

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What every answer about a sandbox needs."""

    sandbox: Sandbox
    expires: Deadline | None


@dataclass(frozen=True, slots=True)
class Use:
    """A sandbox that is awake, and stays so, while somebody acts in it."""

    sandbox: Sandbox
    machine: Machine
    _journal: Journal

    async def record(
        self,
        *,
        commands: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        event: tuple[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Count this use durably, with an event where it is worth one."""
        await self._journal.record(self.sandbox, commands=commands, bytes_in=bytes_in, bytes_out=bytes_out, event=event)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the controller works with, built once by the house."""

    settings: Settings
    clock: Clock
    store: Store
    providers: Mapping[str, Provider]
    default_provider: str
    accounts: Accounts
    engine: Engine
    journal: Journal
    activity: Activity
    idempotency: Idempotency
    bus: Bus
    server_id: str


class Controller:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._clock = parts.clock
        self._store = parts.store
        self._engine = parts.engine
        self._turns = Turns()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    # Reading

    async def get(self, who: Principal, sandbox_id: str) -> Seen:
        return await self._seen(await self._visible(who, sandbox_id))

    async def list(
        self,
        who: Principal,
        *,
        user_id: str | None = None,
        states: Sequence[State] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        async with self._store.read() as connection:
            found, next_cursor = await sandboxes.page(
                connection,
                owner_id=None if who.is_admin else who.user_id,
                user_id=user_id,
                states=states,
                cursor=cursor,
                limit=limit,
            )
            expires = await deadlines.next_of(connection, [sandbox.sandbox_id for sandbox in found])
        return Page(found, expires, next_cursor)

    # Changing

    async def create(self, who: Principal, request: CreateSandbox, idempotency_key: str | None = None) -> Seen:
        sandbox = self._planned(who, request)
        provider = self._engine.provider(sandbox.provider)
        known = await self._engine.call(provider.templates(), "templates")
        if request.template_id is None:
            sandbox = replace(sandbox, template_id=known[0])
        elif request.template_id not in known:
            raise TemplateNotFound(
                f"Provider {sandbox.provider!r} has no template {request.template_id!r}. It has: {', '.join(known)}."
            )
        return await self._seen(await self._own(self._create(who, sandbox, request, idempotency_key)))

    async def connect(self, who: Principal, sandbox_id: str, timeout: int | None = None) -> Seen:
        """Wake it if it sleeps, and give it its whole timeout again."""
        self._check_timeout(timeout)
        await self._awake(who, sandbox_id)
        return await self._retime(who, sandbox_id, timeout, None)

    async def set_timeout(
        self, who: Principal, sandbox_id: str, timeout: int, action: TimeoutAction | None = None
    ) -> Seen:
        """Remember the timeout, and count it from now. A paused sandbox stays paused and has it when it wakes."""
        self._check_timeout(timeout)
        await self._visible(who, sandbox_id)
        return await self._retime(who, sandbox_id, timeout, action)

    async def pause(self, who: Principal, sandbox_id: str) -> Seen:
        await self._visible(who, sandbox_id)
        return await self._seen(await self._own(self._reach(sandbox_id, PAUSE)))

    async def resume(self, who: Principal, sandbox_id: str) -> Seen:
        return await self._seen(await self._awake(who, sandbox_id))

    async def delete(self, who: Principal, sandbox_id: str) -> None:
        """Deleting what is deleted already is a success: the caller has what it wants."""
        await self._visible(who, sandbox_id)
        await self._own(self._reach(sandbox_id, DELETE))
        self._parts.journal.forget(sandbox_id)

    @asynccontextmanager
    async def use(self, who: Principal, sandbox_id: str) -> AsyncIterator[Use]:
        """Act inside: wakes a paused sandbox and keeps the idle deadline away for as long as the context is open."""
        sandbox = await self._awake(who, sandbox_id)
        with self._parts.activity.enter(sandbox):
            left = sandbox.last_activity_at + sandbox.timeout - self._clock.now()
            await self._parts.journal.touch(sandbox, now=left < sandbox.timeout / 2)
            machine = await self._attach(who, sandbox)
            yield Use(sandbox, machine, self._parts.journal)

    # For the scheduler and the reconciler

    async def strike(self, deadline: Deadline) -> bool:
        """A deadline is due: do what it says. False when it turned out to be void."""
        using = self._parts.activity.inside(deadline.sandbox_id)
        if using is not None and deadline.kind is DeadlineKind.IDLE:
            await self._parts.journal.touch(using, now=True)
            return False
        operation = PAUSE if deadline.action is TimeoutAction.PAUSE else DELETE
        return await self._own(self._strike(deadline, operation))

    async def recover(self, sandbox_id: str) -> None:
        """Finish what a crash, or a provider that did not answer, cut short."""
        if not self._turns.busy(sandbox_id):
            await self._own(self._recover(sandbox_id))

    async def compare(self, sandbox_id: str) -> None:
        """Bring one row and the provider's view of it together."""
        await self._own(self._compare(sandbox_id))

    async def close(self, patience: float) -> None:
        """Let what has begun come to its end; leave the rest to the next start."""
        self._closing = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # Inside

    def _planned(self, who: Principal, request: CreateSandbox) -> Sandbox:
        """The row as it will be, still without a template."""
        self._check_timeout(request.timeout)
        settings, wanted, now = self._settings, request.resources, self._clock.now()
        provider = request.provider or self._parts.default_provider
        if provider not in self._parts.providers:
            known = ", ".join(sorted(self._parts.providers))
            raise Invalid(f"This server has no provider {provider!r}. It has: {known}.")
        return Sandbox(
            sandbox_id=new_sandbox_id(request.user_id),
            key=new_sandbox_key(),
            owner_id=who.user_id,
            user_id=request.user_id,
            provider=provider,
            reference=None,
            template_id=request.template_id or "",
            state=State.CREATING,
            reason=None,
            version=1,
            lease_owner=self._parts.server_id,
            attempts=0,
            timeout=request.timeout or settings.default_timeout,
            on_timeout=request.on_timeout,
            max_lifetime=request.max_lifetime,
            cpu=wanted.cpu or settings.default_cpu,
            memory_mb=wanted.memory_mb or settings.default_memory_mb,
            disk_mb=wanted.disk_mb or settings.default_disk_mb,
            pids=wanted.pids or settings.default_pids,
            env=request.env,
            metadata=request.metadata,
            git_url=request.git_url,
            created_at=now,
            started_at=None,
            running_since=None,
            last_activity_at=now,
            state_changed_at=now,
            deleted_at=None,
            event_seq=0,
        )

    async def _create(
        self, who: Principal, sandbox: Sandbox, request: CreateSandbox, idempotency_key: str | None
    ) -> Sandbox:
        async with self._turns.take(sandbox.sandbox_id, self._settings.busy_wait):
            async with self._store.write() as connection:
                holder = sandbox.sandbox_id
                if idempotency_key is not None:
                    claim = await self._parts.idempotency.claim_in(
                        connection, who, idempotency_key, fingerprint("create", request), sandbox.sandbox_id, None
                    )
                    holder = claim.sandbox_id
                if holder == sandbox.sandbox_id:
                    await self._parts.accounts.check_quota(connection, sandbox)
                    await self._engine.add(connection, sandbox)
            if holder == sandbox.sandbox_id:
                self._parts.bus.publish(holder)
                return await self._engine.drive(sandbox)
        return await self._created_before(holder)

    async def _created_before(self, sandbox_id: str) -> Sandbox:
        """The answer to a create that is made again: what the first one made."""
        async with self._turns.take(sandbox_id, self._settings.busy_wait):
            sandbox = await self._settled(sandbox_id)
        if sandbox.state is State.DELETED and sandbox.started_at is None:
            raise ProviderRefused(sandbox.reason or "The create that used this Idempotency-Key failed.")
        return sandbox

    async def _reach(self, sandbox_id: str, operation: Operation, cause: str = "request") -> Sandbox:
        async with self._turns.take(sandbox_id, self._settings.busy_wait):
            while True:
                sandbox = await self._settled(sandbox_id)
                if sandbox.state is operation.done:
                    return sandbox
                if sandbox.state not in operation.start:
                    raise _cannot(sandbox, operation)
                guard = self._parts.accounts.check_quota if operation is RESUME else None
                begun = await self._engine.begin(sandbox, operation, cause=cause, guard=guard)
                if begun is not None:
                    return await self._engine.drive(begun)

    async def _strike(self, deadline: Deadline, operation: Operation) -> bool:
        async with self._turns.take(deadline.sandbox_id, self._settings.busy_wait):
            try:
                sandbox = await self._settled(deadline.sandbox_id)
            except SandboxNotFound:
                sandbox = None
            if sandbox is None or sandbox.state not in operation.start:
                async with self._store.write() as connection:
                    await deadlines.consume(connection, deadline, self._clock.now())
                return False
            begun = await self._engine.begin(sandbox, operation, cause="timeout", deadline=deadline)
            if begun is None:
                return False
            await self._engine.drive(begun)
            return True

    async def _recover(self, sandbox_id: str) -> None:
        async with self._turns.take(sandbox_id, self._settings.busy_wait):
            await self._settled(sandbox_id)

    async def _settled(self, sandbox_id: str) -> Sandbox:
        """The row once nothing is under way: waits for another server, finishes what nobody does. Needs the turn."""
        patience = asyncio.get_running_loop().time() + self._settings.busy_wait
        pause = 0.01
        while True:
            alive_since = self._clock.now() - self._settings.server_ttl
            async with self._store.read() as connection:
                sandbox = await sandboxes.get(connection, sandbox_id)
                if sandbox is None:
                    raise SandboxNotFound.by_id(sandbox_id)
                owner = sandbox.lease_owner
                foreign = owner is not None and owner != self._parts.server_id
                worked_on = foreign and await servers.alive(connection, owner or "", alive_since)
            if not states.unfinished(sandbox.state):
                return sandbox
            if not worked_on:
                taken = await self._engine.take_over(sandbox)
                if taken is not None:
                    await self._finish(taken)
                continue
            if asyncio.get_running_loop().time() > patience:
                raise busy(sandbox_id)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.25)

    async def _finish(self, sandbox: Sandbox) -> None:
        """Drive someone else's leftover. A definite no has moved the row already: that is an end too."""
        try:
            await self._engine.drive(sandbox)
        except (ProviderRefused, SandboxNotFound, Invalid) as error:
            if sandbox.state is State.DELETING:
                raise
            log.info("a transition was undone", sandbox_id=sandbox.sandbox_id, problem=str(error))

    async def _compare(self, sandbox_id: str) -> None:
        async with self._turns.take(sandbox_id, self._settings.busy_wait):
            sandbox = await self._settled(sandbox_id)
            if sandbox.state is State.DELETED:
                return
            provider = self._engine.provider(sandbox.provider)
            found = await self._engine.call(provider.inspect(sandbox_id), "inspect")
            if found is None:
                if sandbox.state is not State.FAILED:
                    await self._engine.correct(sandbox, State.FAILED, "The provider no longer has this sandbox.")
            elif sandbox.state is State.FAILED:
                back = State.RUNNING if found.state is MachineState.RUNNING else State.PAUSED
                await self._engine.correct(sandbox, back, "It turned up again at the provider.", "sandbox.recovered")
            elif sandbox.state is State.RUNNING and found.state is MachineState.PAUSED:
                await self._engine.correct(sandbox, State.PAUSED, "It was found stopped, with its files.")
            elif sandbox.state is State.PAUSED and found.state is MachineState.RUNNING:
                await self._engine.call(provider.pause(sandbox_id), "pause")

    async def _visible(self, who: Principal, sandbox_id: str) -> Sandbox:
        if not is_sandbox_id(sandbox_id):
            raise SandboxNotFound.by_id(sandbox_id)
        async with self._store.read() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id)
        if sandbox is None or not (who.is_admin or sandbox.owner_id == who.user_id):
            raise SandboxNotFound.by_id(sandbox_id)
        return sandbox

    async def _awake(self, who: Principal, sandbox_id: str) -> Sandbox:
        sandbox = await self._visible(who, sandbox_id)
        if sandbox.state is State.RUNNING:
            return sandbox
        if sandbox.state is State.DELETED:
            raise _cannot(sandbox, RESUME)
        return await self._own(self._reach(sandbox_id, RESUME))

    async def _attach(self, who: Principal, sandbox: Sandbox) -> Machine:
        """The machine. Where the provider disagrees with the row (a host that was restarted), the row is put right."""
        for last_try in (False, True):
            provider = self._engine.provider(sandbox.provider)
            try:
                return await self._engine.call(provider.attach(sandbox.sandbox_id), "attach")
            except (SandboxNotFound, Conflict):
                if last_try:
                    raise
                await self.compare(sandbox.sandbox_id)
                sandbox = await self._awake(who, sandbox.sandbox_id)
        raise AssertionError("unreachable")

    async def _retime(self, who: Principal, sandbox_id: str, timeout: int | None, action: TimeoutAction | None) -> Seen:
        now = self._clock.now()
        async with self._store.write() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            if sandbox is None or sandbox.state in {State.DELETING, State.DELETED}:
                raise SandboxNotFound.by_id(sandbox_id)
            sandbox = replace(
                sandbox,
                timeout=timeout or sandbox.timeout,
                on_timeout=action or sandbox.on_timeout,
                last_activity_at=now,
            )
            await sandboxes.patch(
                connection,
                sandbox_id,
                timeout=sandbox.timeout,
                on_timeout=sandbox.on_timeout,
                last_activity_at=now,
            )
            if sandbox.state is State.RUNNING:
                idle = due(now, sandbox.timeout)
                await deadlines.put(connection, sandbox_id, DeadlineKind.IDLE, sandbox.on_timeout, *idle)
            expires = await deadlines.next_of(connection, [sandbox_id])
        return Seen(sandbox, expires.get(sandbox_id))

    async def _seen(self, sandbox: Sandbox) -> Seen:
        async with self._store.read() as connection:
            expires = await deadlines.next_of(connection, [sandbox.sandbox_id])
        return Seen(sandbox, expires.get(sandbox.sandbox_id))

    def _check_timeout(self, timeout: int | None) -> None:
        if timeout is not None and timeout > self._settings.max_timeout:
            raise Invalid(
                f"A timeout may be at most {self._settings.max_timeout} seconds here; {timeout} was asked for.",
                details={"field": "timeout", "max": self._settings.max_timeout},
            )

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, also when the one who asked has gone."""
        if self._closing:
            work.close()
            raise ShuttingDown("This server is stopping. Try again in a moment.", retry_after=2)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # Read the outcome: where the caller has gone nobody else will, and a defect must not pass in silence.
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, PaddockError):
            log.error("an operation failed", exc_info=error)


def _cannot(sandbox: Sandbox, operation: Operation) -> PaddockError:
    details = {"sandbox_id": sandbox.sandbox_id, "status": sandbox.state.value}
    why = f" {sandbox.reason}" if sandbox.reason else ""
    if sandbox.state is State.DELETED:
        when = f" at {iso(sandbox.deleted_at)}" if sandbox.deleted_at else ""
        return SandboxNotFound(f"Sandbox {sandbox.sandbox_id!r} was deleted{when}.{why}", details=details)
    if sandbox.state is State.DELETING:
        return SandboxGone(f"Sandbox {sandbox.sandbox_id!r} is being deleted.", details=details)
    if sandbox.state is State.FAILED:
        return SandboxFailed(
            f"Sandbox {sandbox.sandbox_id!r} has failed and can only be deleted.{why}", details=details
        )
    return SandboxBusy(f"A sandbox that is {sandbox.state.value} cannot {operation.name} now.", details=details)
