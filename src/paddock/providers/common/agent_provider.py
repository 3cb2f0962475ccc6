"""The base of every provider whose machines run Paddock's agent and have a directory with a record on this machine.

Here is what they have in common: handles, locks, warm machines, adoption after a restart, egress, and the order of
steps. A subclass says how a machine is started, paused, measured and ended. Every step is safe to repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.gate import OutboundConnection
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import (
    InsideService,
    MachineInfo,
    MachineState,
    Notice,
    Provider,
    SandboxSpec,
    Shape,
    unheard,
)
from paddock.providers.common.agent_handle import AgentHandle, HandleServices, paused_error
from paddock.providers.common.handle_registry import HandleRegistry, gather_some
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs, SandboxExists
from paddock.providers.common.warm_machines import WarmMachines, anonymous, usual
from paddock.removal import CleanupTasks

log = structlog.get_logger(__name__)

HandleT = TypeVar("HandleT", bound=AgentHandle)
Found = Sequence[tuple[Path, SandboxRecord]]
StateOf = Callable[[SandboxRecord], MachineState | None]


class AgentProvider(Provider, Generic[HandleT]):
    reference_prefix = ""
    """Of the name that a machine has in its record, and where it runs."""

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        *,
        reachable: Sequence[str] = (),
        output: OutputLimits | None = None,
        made: Path | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._dirs = SandboxDirs(root.absolute(), made)
        self._registry: HandleRegistry[HandleT] = HandleRegistry(
            self._dirs, self._clock, output or OutputLimits(), reachable, self._new_handle, self._lost
        )
        self._cleanup = CleanupTasks()
        self._warm_machines: WarmMachines[HandleT] = WarmMachines(
            self._dirs, self._cleanup, self._registry.new, self._drop
        )
        self._notice: Notice = unheard
        self._adopting: asyncio.Task[None] | None = None

    # What a subclass supplies, besides templates, pause, resume and isolation

    @abstractmethod
    async def _prepare(self) -> None:
        """Look at where machines run. Raises with what to do where none can."""

    @abstractmethod
    async def _recover(self, records: Sequence[SandboxRecord]) -> StateOf:
        """Finish what a crash cut short. ``records``: of every sandbox and warm machine. Returns what tells the state
        of each, or None where there is no such machine, without waiting."""

    @abstractmethod
    def _new_handle(self, folder: Path, record: SandboxRecord, services: HandleServices) -> HandleT: ...

    @abstractmethod
    def _require(self, spec: SandboxSpec) -> None:
        """What was asked for is given or refused, never less."""

    @abstractmethod
    async def _start(
        self, draft: Path, record: SandboxRecord, publish: Callable[[Path], Path]
    ) -> tuple[Path, SandboxRecord]:
        """Start a machine. Its record is saved in ``draft`` before anything runs that a crash would leave; ``publish``
        moves the directory where it belongs. Raises what ``publish`` raises."""

    @abstractmethod
    async def _set_limits(self, record: SandboxRecord) -> bool:
        """Give a machine that runs the resources of its spec. False: there is no such machine any more."""

    @abstractmethod
    async def _state(self, record: SandboxRecord) -> MachineState | None:
        """None is definite: there is no such machine."""

    @abstractmethod
    async def _states(self) -> Mapping[str, MachineState]:
        """Of all machines of this installation, by reference."""

    @abstractmethod
    async def _run(self, record: SandboxRecord) -> HandleT:
        """Running in the end, whatever it is now."""

    @abstractmethod
    async def _end(self, record: SandboxRecord) -> None:
        """End the machine, with everything of it but its directory. Raises where it may not have ended."""

    @abstractmethod
    async def _report_crash(self, handle: HandleT) -> None:
        """Notify that its agent ended, and with it the sandbox, unless that is not so."""

    # The life of this server

    async def start(self) -> None:
        """Look at where machines run, and finish what a crash cut short. Those that run are adopted afterwards."""
        await self._prepare()
        records = await asyncio.to_thread(lambda: list(self._dirs.sandboxes()))
        warm = await asyncio.to_thread(lambda: list(self._dirs.warm()))
        state_of = await self._recover([record for _, record in (*records, *warm)])
        self._adopting = asyncio.create_task(self._adopt_all(records, warm, state_of))

    async def close(self) -> None:
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.gather(self._adopting, return_exceptions=True)
        await self._stop_watching()
        await self._registry.close()
        await self._warm_machines.close()
        await self._cleanup.finish()

    def answer_inside(self, service: InsideService) -> bool:
        self._registry.inside = service
        return True

    def tell(self, notice: Notice) -> None:
        self._notice = notice

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:
        self._registry.bandwidths = bandwidths

    # Sandboxes

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        async with self._registry.lock(spec.sandbox_id):
            record = SandboxRecord.load(self._dirs.folder(spec.sandbox_id)) if self._dirs.has(spec.sandbox_id) else None
            if record is not None and (again := await self._again(record)) is not None:
                return again.record.found(await self._state(again.record) or MachineState.RUNNING)
            self._require(spec)
            handle = await self._claim(spec) or await self._make(spec)
            return handle.record.found(MachineState.RUNNING)

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        with contextlib.suppress(errors.SandboxNotFound):
            record = self._registry.known(sandbox_id)
            return record.found(await self._known_state(record))
        return None

    async def list(self) -> list[MachineInfo]:
        states = await self._states()
        records = await asyncio.to_thread(lambda: [record for _, record in self._dirs.sandboxes()])
        # One that was made after the others were listed is not gone.
        late = {one.reference: await self._state(one) for one in records if one.reference not in states}
        found = [(record, states.get(record.reference) or late[record.reference]) for record in records]
        return [record.found(state) for record, state in found if state is not None]

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._dirs.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        async with self._registry.lock(sandbox_id):
            handle = self._registry.pop(sandbox_id)
            if handle is not None:
                handle.deleted = True
            try:  # its processes first, and from outside: nothing that is asked of the agent may come before
                await self._delete(folder, handle.record if handle is not None else None)
            except BaseException:
                if handle is not None and self._dirs.has(sandbox_id):  # it runs on, as far as anybody knows
                    handle.deleted = False
                    self._registry.add(handle)
                    handle = None
                raise
            finally:
                if handle is not None:
                    await handle.detach()

    def attached_machine(self, sandbox_id: str) -> Machine | None:
        handle = self._registry.get(sandbox_id)
        return None if handle is None or handle.paused or not handle.alive() else handle.machine

    async def attach(self, sandbox_id: str) -> Machine:
        handle = self._registry.get(sandbox_id)
        if handle is None or not handle.alive():
            handle = await self._revive(sandbox_id)
        if handle.paused:
            record = self._registry.known(sandbox_id)
            handle.refresh(record, await self._known_state(record))
        if handle.paused:
            raise paused_error(sandbox_id)
        return handle.machine

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        async with self._registry.lock(sandbox_id):
            record = self._registry.known(sandbox_id)
            if policy.mode is not record.spec.egress.mode:
                raise errors.Invalid("The egress mode of a sandbox is chosen when it is made.")
            changed = record.with_spec(egress=policy)
            await asyncio.to_thread(changed.save, self._dirs.folder(sandbox_id))
            if (handle := self._registry.get(sandbox_id)) is not None:
                handle.record = changed
                handle.egress.update(policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        record, handle = self._registry.known(sandbox_id), self._registry.get(sandbox_id)
        return handle.egress.report() if handle else self._registry.egress_of(record).report()

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> OutboundConnection:
        handle = self._registry.get(sandbox_id) or await self._revive(sandbox_id)
        return await handle.egress.connect(host, port, seconds)

    # Warm machines

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        if spec.mounts or spec.egress.mode is EgressMode.FULL:
            return None
        return Shape(spec.template_id, spec.resources.disk_mb)

    async def warm(self, shape: Shape) -> None:
        await self._registry.all_found.wait()
        draft = self._dirs.draft()
        record = self._new_record(draft, anonymous(shape))
        with self._warm_machines.starting(draft):
            try:
                folder, record = await self._start(draft, record, self._dirs.add_warm)
            except BaseException:
                await asyncio.shield(self._drop(draft))
                raise
            await self._warm_machines.add(folder, record)

    async def warmed(self) -> Mapping[Shape, int]:
        """After all that were there at the start are found, or one would make too many."""
        if self._adopting is not None:
            await asyncio.wait({self._adopting})
        await self._warm_machines.follow_other_servers()
        return self._warm_machines.counts()

    async def cool(self, shape: Shape, count: int) -> None:
        while count > 0 and (handle := self._warm_machines.take(shape)) is not None:
            await self._drop(handle.folder, handle)
            count -= 1

    def _usable(self, handle: HandleT) -> bool:
        """Whether a warm machine may still be handed out."""
        return handle.alive()

    # How one comes to run

    async def _again(self, record: SandboxRecord) -> HandleT | None:
        """A create that was cut short after its record was written: it must run in the end. None: it is gone."""
        if await self._state(record) is not None:
            return await self._run(record)
        sandbox_id = record.spec.sandbox_id
        await self._drop(self._dirs.folder(sandbox_id), self._registry.pop(sandbox_id))
        return None

    async def _make(self, spec: SandboxSpec) -> HandleT:
        draft = self._dirs.draft()
        record = self._new_record(draft, spec)
        try:
            _, record = await self._start(draft, record, lambda made: self._dirs.publish(made, spec.sandbox_id))
        except SandboxExists:
            await self._drop(draft)
            return await self._run(self._registry.known(spec.sandbox_id))
        except BaseException:
            await asyncio.shield(self._drop(draft if draft.exists() else self._dirs.folder(spec.sandbox_id)))
            raise
        return await self._registry.adopt(record)

    async def _claim(self, spec: SandboxSpec) -> HandleT | None:
        """A warm machine gets its name, its limits and its egress."""
        shape = self.shape_of(spec)
        while shape is not None and (handle := self._warm_machines.take(shape)) is not None:
            folder = handle.folder
            if not self._usable(handle) or (draft := self._dirs.claim_warm(folder)) is None:
                await self._drop(folder, handle)
                continue
            record = replace(handle.record, spec=spec, created_at=self._clock.now())
            try:
                if spec.resources != usual(spec.resources.disk_mb) and not await self._set_limits(record):
                    await self._drop(draft, handle)
                    continue
                record.save(draft)  # in this thread: shorter than a way to another and back
                folder = self._dirs.publish(draft, spec.sandbox_id)
            except SandboxExists:
                await self._drop(draft, handle)
                return await self._run(self._registry.known(spec.sandbox_id))
            except BaseException:
                await asyncio.shield(self._drop(draft, handle))
                raise
            handle.assign(folder, record, self._registry.bandwidths.of(spec.owner_id))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._registry.open(handle)
            if handle.alive():
                return handle
            self._registry.pop(spec.sandbox_id)  # it ended in this moment, before anybody used it
            await self._drop(folder, handle)
        return None

    async def _revive(self, sandbox_id: str) -> HandleT:
        async with self._registry.lock(sandbox_id):
            handle = self._registry.get(sandbox_id)
            return (
                handle if handle is not None and handle.alive() else await self._reach(self._registry.known(sandbox_id))
            )

    async def _reach(self, record: SandboxRecord) -> HandleT:
        """To act inside it: only one that runs is adopted."""
        if await self._known_state(record) is not MachineState.RUNNING:
            raise paused_error(record.spec.sandbox_id)
        return await self._registry.adopt(record)

    # After a restart

    async def _adopt_all(self, records: Found, warm: Found, state_of: StateOf) -> None:
        """While others are served already: all that run, then their egress, and the warm machines."""
        try:
            found = await self._registry.find_all(records, state_of)
            self._start_watching([*((one.folder, one.record) for one in found), *warm])
        finally:
            self._registry.all_found.set()
        await gather_some(self._registry.open_again, [(handle,) for handle in found])
        if warm:
            await self._before_warm()
        await gather_some(self._warm_machines.adopt, warm)

    def _start_watching(self, found: Found) -> None:
        """Start what looks after the sandboxes of this server. ``found``: all machines that an earlier one has left."""

    async def _stop_watching(self) -> None:
        """It may not have been started."""

    async def _before_warm(self) -> None:
        """Called before warm machines of an earlier server are adopted."""

    # How one ends

    async def _delete(self, folder: Path, known: SandboxRecord | None) -> None:
        """The machine first: until its end is certain, its directory says whose it is."""
        if (record := SandboxRecord.load_or(folder, known)) is not None:
            await self._end(record)
        if (gone := self._dirs.discard(folder)) is not None:
            self._cleanup.remove(gone)

    async def _drop(self, folder: Path, handle: HandleT | None = None) -> None:
        """One that no sandbox uses. What cannot be ended now waits in the trash."""
        if handle is not None:
            await handle.detach()
        try:
            await self._discard(folder)
        except errors.PaddockError as error:
            log.warning("the remains of a sandbox could not be removed yet", problem=error.message)

    async def _discard(self, folder: Path, known: SandboxRecord | None = None) -> Path | None:
        """Ended when this returns. Removing the files can take longer, in the background."""
        if (gone := self._dirs.discard(folder)) is not None:
            if (record := SandboxRecord.load_or(gone, known)) is not None:
                await self._end(record)
            self._cleanup.remove(gone)
        return gone

    def _lost(self, handle: HandleT) -> None:
        if not handle.deleted:
            self._cleanup.add(self._report_crash(handle))

    # Handles and records

    def _all_handles(self) -> Iterable[HandleT]:
        """Of sandboxes and of warm machines."""
        return (*self._registry.values(), *self._warm_machines.machines())

    def _new_record(self, draft: Path, spec: SandboxSpec) -> SandboxRecord:
        return SandboxRecord(spec, self._clock.now(), self.reference_prefix + draft.name)

    async def _known_state(self, record: SandboxRecord) -> MachineState:
        if (state := await self._state(record)) is None:
            raise errors.SandboxNotFound.by_id(record.spec.sandbox_id)
        return state
