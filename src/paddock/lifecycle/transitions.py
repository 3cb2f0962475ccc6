"""Runs sandbox transitions; every change of state is started here.

A caller takes the sandbox's lock, finishes what another server left unfinished, and lets the engine do the rest. The
work runs in tasks of its own, so a client that disconnects does not interrupt it. Only delete does not wait: it writes
its intent over an operation under way, and cancels it.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import IntegrityError

from paddock.accounts.accounts import Accounts
from paddock.clock import Clock, iso
from paddock.errors import (
    InsufficientStorage,
    Invalid,
    PaddockError,
    ProviderRefused,
    ProviderTimeout,
    SandboxBusy,
    SandboxFailed,
    SandboxGone,
    SandboxNotFound,
    ShuttingDown,
    StoreFull,
    Unsupported,
)
from paddock.lifecycle import states
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.locks import AdmissionQueue, KeyedLock, busy
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.states import DELETE, PAUSE, RESUME, Operation
from paddock.models import State, TimeoutAction
from paddock.providers.base import MachineState
from paddock.settings import Settings
from paddock.store import deadlines, sandboxes, servers
from paddock.store.database import Store
from paddock.store.records import Deadline, SandboxRow

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Transitions:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        accounts: Accounts,
        engine: Engine,
        calls: ProviderCalls,
        nodes: Nodes,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._accounts = accounts
        self._engine = engine
        self._calls = calls
        self._nodes = nodes
        self._admission = AdmissionQueue()
        self._server_id = server_id
        self._locks = KeyedLock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        """Tasks cancelled by a delete, each with the sandbox that it worked on."""
        self._closing = False

    async def reach(self, sandbox_id: str, operation: Operation, **values: Any) -> SandboxRow:
        """Bring the sandbox to the state that the operation leads to, by this call or a concurrent one; returns its
        row."""
        return (await self.move(sandbox_id, operation, **values))[0]

    async def move(self, sandbox_id: str, operation: Operation, **values: Any) -> tuple[SandboxRow, bool]:
        """The same, and whether this call made the transition. ``values`` are columns to set with the intent."""
        return await self._run_to_end(self._move(sandbox_id, operation, values))

    async def create(
        self, sandbox: SandboxRow, write: Callable[[], Awaitable[bool]], *, once: bool
    ) -> SandboxRow | None:
        """Write the first row, then drive it. None if ``write`` finds that another create has this idempotency key.
        ``once``: the caller cannot ask for this sandbox again, so it is deleted if the create is answered as failed."""
        async with self._admission.turn():
            return await self._run_to_end(self._create(sandbox, write, once))

    async def settled(self, sandbox_id: str) -> SandboxRow:
        """The row once no operation is under way."""
        return await self._run_to_end(self._recover(sandbox_id))

    async def expire_deadline(self, deadline: Deadline) -> bool:
        """Execute a due deadline. False if it was void."""
        return await self._run_to_end(self._expire_deadline(deadline))

    async def expire(self, sandbox_id: str) -> None:
        """Delete a sandbox whose end has come during a transition, when it has no deadlines."""
        await self._run_to_end(self._delete(sandbox_id, cause="timeout"))

    async def recover(self, sandbox_id: str) -> None:
        """Finish a transition interrupted by a crash or a provider timeout."""
        if not self._locks.busy(sandbox_id):
            await self.settled(sandbox_id)

    async def abandon(self, sandbox_id: str) -> None:
        """Undo a create that was answered with an error, unless it is being requested again at this moment."""
        if not self._locks.busy(sandbox_id):
            await self._run_to_end(self._abandon(sandbox_id))

    async def in_turn(self, sandbox_id: str, work: Callable[[SandboxRow], Awaitable[T]]) -> T:
        """Run ``work`` with the settled row while holding the sandbox's lock."""
        return await self._run_to_end(self._in_turn(sandbox_id, work))

    async def compare(self, sandbox_id: str, why: str = "It was found stopped, with its files.") -> None:
        """Compare the row with the provider and correct it. ``why``: the reason to record if the sandbox is found
        stopped."""
        await self._run_to_end(self._compare(sandbox_id, why))

    async def close(self, patience: float) -> None:
        """Wait up to ``patience`` seconds for running operations; the next start finishes the rest."""
        self._closing = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=patience)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _create(self, sandbox: SandboxRow, write: Callable[[], Awaitable[bool]], once: bool) -> SandboxRow | None:
        # Take the lock first: the reconciler may find the row as soon as it is written.
        async with self._locks.take(sandbox.sandbox_id, self._settings.busy_wait):
            return _alive(await self._engine.drive(sandbox, once=once), "be created") if await write() else None

    async def _move(self, sandbox_id: str, operation: Operation, values: Mapping[str, Any]) -> tuple[SandboxRow, bool]:
        if operation is DELETE:
            return await self._delete(sandbox_id, cause="request")
        async with self._locks.take(sandbox_id, self._settings.busy_wait):
            while True:
                sandbox = await self._settled(sandbox_id)
                if sandbox.state is operation.done:
                    return sandbox, False
                if sandbox.state not in operation.start:
                    raise cannot(sandbox, operation.name)
                self._nodes.require(sandbox)
                guard = self._accounts.check_quota if operation is RESUME else None
                begun = await self._engine.begin(sandbox, operation, cause="request", guard=guard, values=values)
                if begun is not None:
                    return _alive(await self._engine.drive(begun), operation.name), True

    async def _delete(self, sandbox_id: str, *, cause: str) -> tuple[SandboxRow, bool]:
        """Delete from any state, also during another operation. The flag tells whether this call began it."""
        while True:
            sandbox = await self._row(sandbox_id)
            if sandbox.state is State.DELETED:
                return sandbox, False
            if sandbox.state is State.DELETING:
                return await self._finish_delete(sandbox_id, None), False
            begun = await self._begin_delete(sandbox, cause)
            if begun is not None:
                return await self._finish_delete(sandbox_id, begun), True

    async def _begin_delete(self, sandbox: SandboxRow, cause: str) -> SandboxRow | None:
        """If the disk is too full to write the intent, remove the machine first to make room. If this server dies in
        between, the reconciler finds that the machine is missing and records that."""
        try:
            return await self._engine.begin(sandbox, DELETE, cause=cause)
        except StoreFull:
            self._nodes.require(sandbox)
            await self._engine.remove_machine(sandbox)
            return await self._engine.begin(sandbox, DELETE, cause=cause)

    async def _finish_delete(self, sandbox_id: str, begun: SandboxRow | None) -> SandboxRow:
        """``begun``: the intent that this call wrote; None if it was there already."""
        if begun is not None:
            self._interrupt(sandbox_id)
        if begun is not None and not self._nodes.reachable(begun):
            raise self._nodes.delete_stands(begun)
        try:
            async with self._locks.take(sandbox_id, self._settings.busy_wait):
                ours = begun is not None and self._nodes.here(begun)
                deleted = await self._engine.drive(begun) if begun and ours else await self._settled(sandbox_id)
                # Another task may have taken the delete over and been cancelled by this call, which then has to finish
                # it.
                return deleted if deleted.state is State.DELETED else await self._settled(sandbox_id)
        except SandboxBusy:
            raise ProviderTimeout(
                f"Sandbox {sandbox_id!r} is not gone yet. Its delete stands, and Paddock goes on with it.",
                details={"sandbox_id": sandbox_id, "status": State.DELETING.value},
                retry_after=5,
            ) from None

    def _interrupt(self, sandbox_id: str) -> None:
        """Cancel the task that holds the lock: its outcome would be void, since the row's version has changed."""
        holder = self._locks.holder(sandbox_id)
        if holder is not None and holder is not asyncio.current_task():
            self._interrupted[holder] = sandbox_id
            holder.cancel()

    async def _expire_deadline(self, deadline: Deadline) -> bool:
        if deadline.action is TimeoutAction.DELETE:
            return await self._expire_by_deleting(deadline)
        async with self._locks.take(deadline.sandbox_id, self._settings.busy_wait):
            try:
                sandbox = await self._settled(deadline.sandbox_id)
            except SandboxNotFound:
                sandbox = None
            if sandbox is None or sandbox.state not in PAUSE.start:
                await self._consume(deadline)
                return False
            values = {"memory_kept": sandbox.keep_memory}
            begun = await self._engine.begin(sandbox, PAUSE, cause="timeout", deadline=deadline, values=values)
            if begun is None:
                return False
            await self._engine.drive(begun)
            return True

    async def _expire_by_deleting(self, deadline: Deadline) -> bool:
        try:
            sandbox = await self._row(deadline.sandbox_id)
        except SandboxNotFound:
            sandbox = None
        if sandbox is None or sandbox.state not in DELETE.start:
            await self._consume(deadline)
            return False
        begun = await self._engine.begin(sandbox, DELETE, cause="timeout", deadline=deadline)
        if begun is None:
            return False
        await self._finish_delete(deadline.sandbox_id, begun)
        return True

    async def _consume(self, deadline: Deadline) -> None:
        async with self._store.write() as connection:
            await deadlines.consume(connection, deadline, self._clock.now())

    async def _row(self, sandbox_id: str) -> SandboxRow:
        async with self._store.read() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id)
        if sandbox is None:
            raise SandboxNotFound.by_id(sandbox_id)
        return sandbox

    async def _in_turn(self, sandbox_id: str, work: Callable[[SandboxRow], Awaitable[T]]) -> T:
        async with self._locks.take(sandbox_id, self._settings.busy_wait):
            return await work(await self._settled(sandbox_id))

    async def _recover(self, sandbox_id: str) -> SandboxRow:
        async with self._locks.take(sandbox_id, self._settings.busy_wait):
            return await self._settled(sandbox_id)

    async def _settled(self, sandbox_id: str) -> SandboxRow:
        """The row once no operation is under way: waits for another server, finishes what no server works on. The
        caller holds the lock."""
        patience = asyncio.get_running_loop().time() + self._settings.busy_wait
        pause = 0.01
        while True:
            now, ttl = self._clock.now(), self._settings.server_ttl
            async with self._store.read() as connection:
                sandbox = await sandboxes.get(connection, sandbox_id)
                if sandbox is None:
                    raise SandboxNotFound.by_id(sandbox_id)
                owner = sandbox.lease_owner
                foreign = owner is not None and owner != self._server_id
                worked_on = foreign and await servers.alive(connection, owner or "", now, ttl)
            if not states.unfinished(sandbox.state):
                return sandbox
            if not worked_on and self._nodes.here(sandbox):
                taken = await self._engine.take_over(sandbox)
                if taken is not None:
                    await self._finish(taken)
                continue
            if asyncio.get_running_loop().time() > patience:
                raise busy(sandbox_id)
            if not self._nodes.reachable(sandbox):
                deleting = sandbox.state is State.DELETING
                raise self._nodes.delete_stands(sandbox) if deleting else self._nodes.elsewhere(sandbox)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.25)

    async def _finish(self, sandbox: SandboxRow) -> None:
        """Finish a transition that another server or task left. A definite refusal has moved the row too, which is
        enough."""
        try:
            await self._engine.drive(sandbox)
        except (ProviderRefused, SandboxNotFound, InsufficientStorage, Unsupported, Invalid) as error:
            if sandbox.state is State.DELETING:
                raise
            log.info("a transition was undone", sandbox_id=sandbox.sandbox_id, problem=str(error))

    async def _abandon(self, sandbox_id: str) -> None:
        async with self._locks.take(sandbox_id, self._settings.busy_wait):
            sandbox = await self._row(sandbox_id)
            if sandbox.state is State.CREATING:
                await self._engine.abandon(sandbox)

    async def _compare(self, sandbox_id: str, why: str) -> None:
        async with self._locks.take(sandbox_id, self._settings.busy_wait):
            while not await self._agree(await self._settled(sandbox_id), why):
                continue  # the row has changed since it was read

    async def _agree(self, sandbox: SandboxRow, why: str) -> bool:
        if sandbox.state is State.DELETED or not self._nodes.here(sandbox):
            return True
        provider = self._calls.of(sandbox)
        found = await self._calls.run(provider.inspect(sandbox.sandbox_id), "inspect")
        correct = functools.partial(self._engine.correct, sandbox)
        if found is None and self._nodes.unplaced(sandbox):
            return True
        if sandbox.node_id is None and found is not None:
            await self._engine.place(sandbox)
        if found is None:
            gone = "The provider no longer has this sandbox."
            return sandbox.state is State.FAILED or await correct(State.FAILED, gone) is not None
        if sandbox.state is State.FAILED:
            back = State.RUNNING if found.state is MachineState.RUNNING else State.PAUSED
            return await correct(back, "It turned up again at the provider.", "sandbox.recovered") is not None
        if sandbox.state is State.RUNNING and found.state is MachineState.PAUSED:
            return await correct(State.PAUSED, why) is not None
        if sandbox.state is State.PAUSED and found.state is MachineState.RUNNING:
            await self._calls.run(provider.pause(sandbox.sandbox_id, keep_memory=sandbox.memory_kept), "pause")
        return True

    async def _run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end in a task of its own, also if the caller is cancelled."""
        if self._closing:
            work.close()
            raise ShuttingDown("This server is stopping. Try again in a moment.", retry_after=2)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task in self._interrupted and task.cancelled() and not (caller and caller.cancelling()):
                raise _being_deleted(self._interrupted[task]) from None
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # Retrieve the exception: if the caller is gone nothing else does, and a bug must not go unnoticed.
        if task.cancelled() or isinstance(error := task.exception(), PaddockError | IntegrityError):
            return
        if error is not None:
            log.error("an operation failed", exc_info=error)


def _alive(sandbox: SandboxRow, what: str) -> SandboxRow:
    """The row after an operation; raises if a delete overtook it."""
    if sandbox.state in states.GONE:
        raise cannot(sandbox, what)
    return sandbox


def _being_deleted(sandbox_id: str) -> SandboxGone:
    details = {"sandbox_id": sandbox_id, "status": State.DELETING.value}
    return SandboxGone(f"Sandbox {sandbox_id!r} is being deleted.", details=details)


def cannot(sandbox: SandboxRow, what: str) -> PaddockError:
    details = {"sandbox_id": sandbox.sandbox_id, "status": sandbox.state.value}
    why = f" {sandbox.reason}" if sandbox.reason else ""
    if sandbox.state is State.DELETED:
        when = f" at {iso(sandbox.deleted_at)}" if sandbox.deleted_at else ""
        return SandboxNotFound(f"Sandbox {sandbox.sandbox_id!r} was deleted{when}.{why}", details=details)
    if sandbox.state is State.DELETING:
        return _being_deleted(sandbox.sandbox_id)
    if sandbox.state is State.FAILED:
        return SandboxFailed(
            f"Sandbox {sandbox.sandbox_id!r} has failed and can only be deleted.{why}", details=details
        )
    return SandboxBusy(f"A sandbox that is {sandbox.state.value} cannot {what} now.", details=details)
