"""The local provider: sandboxes on this machine, with nothing but the kernel. Every step is safe to repeat."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import structlog

from paddock import errors
from paddock.clock import Clock, SystemClock
from paddock.egress.addresses import PrivateAccess
from paddock.egress.bandwidth import Bandwidths
from paddock.egress.gate import OutboundConnection
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressReport
from paddock.egress.resolve import HostResolver
from paddock.loop_turns import give_turn
from paddock.machine.base import Machine, OutputLimits
from paddock.providers.base import (
    InsideService,
    IsolationReport,
    MachineInfo,
    MachineState,
    Notice,
    SandboxSpec,
    Shape,
    Storage,
)
from paddock.providers.common import capacity, removal
from paddock.providers.common.cleanup_tasks import CleanupTasks
from paddock.providers.common.record import RECORD, SandboxRecord
from paddock.providers.common.sandbox_dirs import SandboxDirs, SandboxExists
from paddock.providers.common.sandbox_egress import SandboxEgress
from paddock.providers.common.warm_machines import WarmMachines, anonymous
from paddock.providers.local.builder import LocalBuilder, kind
from paddock.providers.local.disk_allocator import DiskAllocator, DiskPolicy
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.providers.local.handle import AgentSilent, LocalHandle
from paddock.providers.local.home_watcher import HomeWatcher
from paddock.providers.local.isolation_backend import NamespaceBackend
from paddock.providers.local.monitor import SandboxMonitor
from paddock.settings import Settings

log = structlog.get_logger(__name__)

_FIND_AGAIN_SECONDS = 10.0  # for an agent to answer a server that starts; else it is taken up by its next use
_TAKEN_UP_AT_ONCE = 32


class LocalProvider(capacity.OnThisHost):
    name = "local"

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        *,
        templates: Path | None = None,
        made: Path | None = None,
        addons: Path | None = None,
        extra_ca: Path | None = None,
        reachable: Sequence[str] = (),
        output: OutputLimits | None = None,
        runsc: RunscSettings | None = None,
        disks: DiskPolicy | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._output = output or OutputLimits()
        self._reach = PrivateAccess(reachable=reachable)
        self._resolver = HostResolver()
        self._bandwidths = Bandwidths()
        self._dirs = SandboxDirs(root.absolute(), made)
        self._warm_machines: WarmMachines[LocalHandle] = WarmMachines()
        self._warming: set[str] = set()
        self._handles: dict[str, LocalHandle] = {}
        disks = disks or DiskPolicy()
        self._disk_allocator = DiskAllocator(
            self._dirs.root, disks, lambda: (*self._handles.values(), *self._warm_machines.machines())
        )
        templates = templates or root.absolute().parent / "templates"
        self._builder = LocalBuilder(self._dirs, self._disk_allocator.reserve, templates, addons, runsc, extra_ca)
        self._home_watcher = HomeWatcher(self._dirs.root, self._builder.programs.launcher, self._held)
        self._builder.on_start = self._home_watcher.add
        self._locks: dict[str, asyncio.Lock] = {}
        self._cleanup = CleanupTasks()
        self._inside: InsideService | None = None
        self._monitor = SandboxMonitor(self._dirs.root, disks.reserve_mb, self._handles.values)
        self._adopting: asyncio.Task[None] | None = None
        self._all_found = asyncio.Event()
        """Nothing is made, ended or changed before it is known what there is."""
        self._counting = asyncio.Lock()

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> Self:
        home = settings.home.absolute()
        runsc = RunscSettings(settings.runsc, settings.runsc_platform)
        return cls(
            home / "local",
            clock,
            addons=home / "addons",
            extra_ca=settings.extra_ca,
            reachable=settings.egress_reachable,
            runsc=runsc,
            output=OutputLimits(settings.output_spool, settings.stall_timeout),
            disks=DiskPolicy(settings.disk_reserve_mb, settings.disk_overcommit),
        )

    async def start(self) -> None:
        """Look at the machine, and finish what a crash cut short. Living sandboxes are taken up after this returned."""
        await asyncio.to_thread(self._builder.prepare)
        records = await asyncio.to_thread(lambda: list(self._dirs.sandboxes()))
        warm = await asyncio.to_thread(lambda: list(self._dirs.warm()))
        gone = await asyncio.to_thread(self._builder.clean_up, [record for _, record in (*records, *warm)])
        for folder in gone:  # with as many files as a sandbox liked: nobody waits for that
            self._cleanup.add(asyncio.to_thread(removal.remove, folder))
        self._home_watcher.start()
        self._adopting = asyncio.create_task(self._adopt_all(records, warm))

    async def close(self) -> None:
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.gather(self._adopting, return_exceptions=True)
        await self._monitor.close()
        self._home_watcher.close()
        handles = list(self._handles.values())
        self._handles.clear()
        for one in (*handles, *self._warm_machines.clear()):
            await one.detach()
        await self._cleanup.finish()
        self._resolver.close()
        await asyncio.to_thread(self._builder.close)

    async def templates(self) -> list[str]:
        return self._builder.templates.names()

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        async with self._turn(spec.sandbox_id):
            record = SandboxRecord.load(self._dirs.folder(spec.sandbox_id)) if self._dirs.has(spec.sandbox_id) else None
            if record is not None:
                return await self._again(record)
            self._builder.require(spec)
            self._disk_allocator.admit(spec.resources.disk_mb)
            with _host_disk_full():
                handle = await self._claim(spec) or await self._make(spec)
            return handle.record.found(MachineState.RUNNING)

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        try:
            record = SandboxRecord.load(self._dirs.folder(sandbox_id))
        except errors.SandboxNotFound:
            return None
        return record.found() if record else None

    async def list(self) -> list[MachineInfo]:
        return await asyncio.to_thread(lambda: [record.found() for _, record in self._dirs.sandboxes()])

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._turn(sandbox_id):
            record = self._known(sandbox_id)
            if not keep_memory:
                await self._halt(record)
                return
            handle = self._handles.get(sandbox_id)
            if handle is None and record.running is not None and record.running.alive():
                handle = await self._adopt(self._dirs.folder(sandbox_id), record, answering=False)
            if handle is None or not handle.alive():
                return  # files only: that is what paused means
            handle.see(record)
            try:
                await handle.freeze(by_group=self._builder.host.cgroups.freezer is not None)
            except AgentSilent as error:
                # What cannot be stopped by asking is ended from outside: nobody's code may run on for ever.
                log.warning("paused by its files alone", sandbox_id=sandbox_id, problem=error.message)
                await self._halt(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._turn(sandbox_id):
            handle = self._handles.get(sandbox_id)
            record = self._known(sandbox_id)
            if handle is None or not handle.alive():
                await self._restart(record)
            else:
                handle.see(record)
                await handle.thaw()
                await self._disk_allocator.wake()

    async def delete(self, sandbox_id: str) -> None:
        try:
            folder = self._dirs.folder(sandbox_id)
        except errors.SandboxNotFound:
            return
        await self._all_found.wait()
        self._builder.strike(folder)  # whoever has its turn, and waits for its agent, hears of its end at once
        async with self._turn(sandbox_id):
            if (handle := self._handles.pop(sandbox_id, None)) is not None:
                handle.delete()
            try:  # its processes first, and from outside: nothing that is asked of the agent may come before
                gone = await self._discard(folder, handle.record if handle is not None else None)
                await asyncio.to_thread(self._builder.end_discarded, sandbox_id, gone)
            finally:
                if handle is not None:
                    await handle.detach()
        self._locks.pop(sandbox_id, None)

    def attached_machine(self, sandbox_id: str) -> Machine | None:
        handle = self._handles.get(sandbox_id)
        return None if handle is None or handle.paused or not handle.alive() else handle.machine

    async def attach(self, sandbox_id: str) -> Machine:
        handle = self._handles.get(sandbox_id)
        if handle is None or not handle.alive():
            handle = await self._revive(sandbox_id)
        if handle.paused:
            handle.see(self._known(sandbox_id))
        if handle.paused:
            raise errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
        return handle.machine

    async def storage(self) -> Storage:
        return await asyncio.to_thread(self._disk_allocator.storage)

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        return self._builder.backend(self._known(sandbox_id).spec).report()

    async def set_egress(self, sandbox_id: str, policy: EgressPolicy) -> None:
        async with self._turn(sandbox_id):
            record = self._known(sandbox_id)
            if policy.mode is not record.spec.egress.mode:
                raise errors.Invalid("The egress mode of a sandbox is chosen when it is made.")
            changed = record.with_spec(egress=policy)
            await asyncio.to_thread(changed.save, self._dirs.folder(sandbox_id))
            if (handle := self._handles.get(sandbox_id)) is not None:
                handle.record = changed
                handle.egress.update(policy)

    async def egress(self, sandbox_id: str) -> EgressReport:
        record, handle = self._known(sandbox_id), self._handles.get(sandbox_id)
        return handle.egress.report() if handle else self._egress_of(record).report()

    async def connect_out(self, sandbox_id: str, host: str, port: int, seconds: float) -> OutboundConnection:
        handle = self._handles.get(sandbox_id) or await self._revive(sandbox_id)
        return await handle.egress.connect(host, port, seconds)

    def answer_inside(self, service: InsideService) -> bool:
        self._inside = service
        return True

    def tell(self, notice: Notice) -> None:
        self._monitor.notice = notice

    def limit_bandwidth(self, bandwidths: Bandwidths) -> None:
        self._bandwidths = bandwidths

    # Machines made in advance

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        plain = not spec.mounts and spec.egress.mode is not EgressMode.FULL and kind(spec) is NamespaceBackend
        adjusts = plain and self._builder.host.adjusts(spec.resources)
        return Shape(spec.template_id, spec.resources.disk_mb) if adjusts else None

    async def warm(self, shape: Shape) -> None:
        await self._all_found.wait()
        self._disk_allocator.admit(shape.disk_mb)
        draft = self._dirs.draft()
        self._warming.add(draft.name)
        try:
            await self._warm(draft, SandboxRecord(anonymous(shape), self._clock.now(), draft.name))
        finally:
            self._warming.discard(draft.name)
        await self._disk_allocator.share_out()

    async def _warm(self, draft: Path, record: SandboxRecord) -> None:
        try:
            folder, record = await self._builder.start(draft, record, self._dirs.add_warm)
        except BaseException:
            await asyncio.shield(self._drop(draft, None))
            raise
        handle = self._hold(folder, record)
        try:
            if not handle.watch(self._warm_lost):
                raise errors.ProviderUnavailable("A machine made in advance ended at once.")
            await handle.prepare()
        except BaseException:
            await asyncio.shield(self._drop(folder, handle))
            raise
        self._warm_machines.add(folder, record, handle)

    async def warmed(self) -> Mapping[Shape, int]:
        """After all that were there at the start are found, or one would make too many."""
        if self._adopting is not None:
            await asyncio.wait({self._adopting})
        async with self._counting:
            await self._follow_stock()
        return self._warm_machines.counts()

    async def _follow_stock(self) -> None:
        """What other servers on this home have made ready since, and what they have taken."""
        there = set(self._dirs.warm_names())
        for handle in self._warm_machines.taken(there):
            await handle.detach()
        if new := there - self._warm_machines.names() - self._warming:
            records = await asyncio.to_thread(lambda: list(self._dirs.warm()))
            for folder, record in records:
                if folder.name in new:
                    await self._restock(folder, record)

    async def cool(self, shape: Shape, count: int) -> None:
        while count > 0 and (taken := self._warm_machines.take(shape)) is not None:
            await self._drop(taken[0], taken[2])
            count -= 1

    # How one comes to live

    async def _again(self, record: SandboxRecord) -> MachineInfo:
        """A create that was cut short after its record was written: it must run in the end."""
        handle = self._handles.get(record.spec.sandbox_id)
        if handle is None or not handle.alive():
            handle = await self._adopt_or_restart(record)
        return handle.record.found()

    async def _adopt_or_restart(self, record: SandboxRecord) -> LocalHandle:
        if record.running is not None and record.running.alive():
            return await self._adopt(self._dirs.folder(record.spec.sandbox_id), record)
        return await self._restart(record)

    async def _make(self, spec: SandboxSpec) -> LocalHandle:
        draft = self._dirs.draft()
        record = SandboxRecord(spec, self._clock.now(), draft.name)
        try:
            folder, record = await self._builder.start(
                draft, record, lambda made: self._dirs.publish(made, spec.sandbox_id)
            )
        except SandboxExists:
            await self._drop(draft, None)
            return await self._adopt_or_restart(self._known(spec.sandbox_id))
        except BaseException:
            await asyncio.shield(self._drop(draft if draft.exists() else self._dirs.folder(spec.sandbox_id), None))
            raise
        return await self._adopt_limited(folder, record)

    async def _claim(self, spec: SandboxSpec) -> LocalHandle | None:
        """A machine made in advance gets its name, its limits and its way out."""
        shape = self.shape_of(spec)
        while shape is not None and (taken := self._warm_machines.take(shape)) is not None:
            folder, record, handle = taken
            usable = handle is not None and handle.alive() and not handle.disk_failed()
            if (
                handle is None
                or not usable
                or self._is_outdated(folder, record)
                or (draft := self._dirs.claim_warm(folder)) is None
            ):
                await self._drop(folder, handle)
                continue
            record = replace(record, spec=spec, created_at=self._clock.now())
            try:
                folder = self._builder.rename(draft, record, self._dirs)  # shorter than a way to a thread and back
            except SandboxExists:
                await self._drop(draft, handle)
                return await self._adopt_or_restart(self._known(spec.sandbox_id))
            except BaseException:
                made = draft if draft.exists() else self._dirs.folder(spec.sandbox_id)
                await asyncio.shield(self._drop(made, handle))
                raise
            handle.assign(folder, record, self._bandwidths.of(spec.owner_id))
            with contextlib.suppress(errors.ProviderUnavailable):
                await self._adopt_handle(handle)
            if handle.alive():
                await self._disk_allocator.wake()
                return handle
            self._handles.pop(spec.sandbox_id, None)  # it ended in this moment, with nothing of anybody's in it
            await self._drop(folder, handle)
        return None

    def _is_outdated(self, folder: Path, record: SandboxRecord) -> bool:
        try:
            made_at = (folder / RECORD).stat().st_mtime
        except OSError:
            return True
        return self._builder.templates.is_outdated(record.spec.template_id, made_at)

    async def _drop(self, folder: Path, handle: LocalHandle | None) -> None:
        if handle is not None:
            await handle.detach()
        await self._discard(folder)

    async def _discard(self, folder: Path, known: SandboxRecord | None = None) -> Path | None:
        """Ended when this returns. Removing the files can take longer, and nobody needs to wait for that."""
        if (gone := self._dirs.discard(folder)) is not None:
            await asyncio.to_thread(self._builder.end, gone, known)
            self._cleanup.add(asyncio.to_thread(removal.remove, gone))
        return gone

    async def _repair(self, handle: LocalHandle) -> bool:
        """Of one whose file system failed: check it, and start afresh. False where it is not there any more."""
        if self._warm_machines.has(handle):
            self._warm_lost(handle)
            return False
        sandbox_id = handle.record.spec.sandbox_id
        async with self._turn(sandbox_id):
            if self._handles.get(sandbox_id) is not handle or not handle.disk_failed():
                return False
            if not handle.paused:
                await self._restart(handle.record, failed=True)
                return True
            await self._halt(handle.record)
            await asyncio.to_thread(self._builder.reap, handle.folder, handle.record.with_running(None), failed=True)
            return True

    async def _restart(self, record: SandboxRecord, *, failed: bool = False) -> LocalHandle:
        """Its processes are gone (a reboot, or somebody ended them); its files are not. ``failed``: its file system
        met an error, and its processes may be there yet."""
        folder = self._dirs.folder(record.spec.sandbox_id)
        if (old := self._handles.pop(record.spec.sandbox_id, None)) is not None:
            await old.detach()
        await asyncio.to_thread(self._builder.reap, folder, record, failed=failed)
        folder, record = await self._builder.start(folder, record.with_running(None), lambda made: made)
        try:
            handle = await self._adopt_limited(folder, record)
            await handle.machine.usage()
        except errors.ProviderTimeout:
            raise
        except errors.ProviderUnavailable:
            await asyncio.to_thread(self._builder.reap, folder, record)
            raise errors.ProviderRefused("It ends at once: what is on its disk keeps it from running.") from None
        return handle

    async def _halt(self, record: SandboxRecord) -> None:
        """End its processes and keep its files, written down so that nobody takes it for one that crashed."""
        if (handle := self._handles.pop(record.spec.sandbox_id, None)) is not None:
            await handle.detach()
        await asyncio.to_thread(self._builder.halt, self._dirs.folder(record.spec.sandbox_id), record)

    async def _adopt(self, folder: Path, record: SandboxRecord, *, answering: bool = True) -> LocalHandle:
        handle = self._hold(folder, record)
        handle.paused = record.state() is MachineState.PAUSED
        return await self._adopt_handle(handle, answering=answering)

    async def _revive(self, sandbox_id: str) -> LocalHandle:
        async with self._turn(sandbox_id):
            handle = self._handles.get(sandbox_id)
            if handle is not None and handle.alive():
                return handle
            record = self._known(sandbox_id)
            if record.running is not None and record.running.alive():
                return await self._adopt(self._dirs.folder(sandbox_id), record)
            if record.running is None or record.running.stopped:
                raise errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
            log.warning("sandbox had ended by itself; starting it again from its files", sandbox_id=sandbox_id)
            return await self._restart(record)

    async def _adopt_handle(self, handle: LocalHandle, *, answering: bool = True) -> LocalHandle:
        """``answering=False``: nothing is asked of its agent, which may not answer any more."""
        sandbox_id = handle.record.spec.sandbox_id
        self._handles[sandbox_id] = handle
        try:
            if handle.watch(self._lost) and answering and not handle.paused:
                await handle.open()
        except BaseException:  # to be taken up whole by whoever asks next
            self._handles.pop(sandbox_id, None)
            await asyncio.shield(handle.detach())
            raise
        return handle

    async def _adopt_limited(self, folder: Path, record: SandboxRecord) -> LocalHandle:
        """One that has just been started: its share of the host's disk is set before anybody can use it."""
        handle = await self._adopt_handle(self._hold(folder, record))
        await self._disk_allocator.share_out()
        return handle

    def _find_running(self, folder: Path, record: SandboxRecord) -> LocalHandle | None:
        """One that lives, of an earlier server. Nothing is asked of its agent yet: there may be hundreds."""
        if record.running is None or not record.running.alive():
            return None
        handle = self._hold(folder, record)
        handle.paused = record.state() is MachineState.PAUSED
        if not handle.watch(self._lost):
            return None
        self._handles[record.spec.sandbox_id] = handle
        return handle

    async def _adopt_all(
        self, records: Sequence[tuple[Path, SandboxRecord]], warm: Sequence[tuple[Path, SandboxRecord]]
    ) -> None:
        """While others are served already: all that live, then their ways out, and what stands ready."""
        try:
            found = await self._find_all(records, warm)
        finally:
            self._all_found.set()
        places = asyncio.Semaphore(_TAKEN_UP_AT_ONCE)

        async def each(work: Callable[..., Awaitable[None]], *given: Any) -> None:
            async with places:
                await work(*given)

        await asyncio.gather(*(each(self._open_again, handle) for handle in found))
        if warm:  # made by another server, which may not have seen what has become private since
            await asyncio.to_thread(self._builder.templates.hide_private_files)
        await asyncio.gather(*(each(self._restock, folder, record) for folder, record in warm))

    async def _find_all(
        self, records: Sequence[tuple[Path, SandboxRecord]], warm: Sequence[tuple[Path, SandboxRecord]]
    ) -> Sequence[LocalHandle]:
        found = []
        for folder, record in records:
            await give_turn()
            try:
                handle = self._find_running(folder, record)
            except (errors.PaddockError, OSError) as error:  # it is taken up by its next use
                log.warning("sandbox is not taken up yet", sandbox_id=record.spec.sandbox_id, problem=str(error))
                continue
            if handle is not None:
                found.append(handle)
                self._home_watcher.add(folder, record.running)
        for folder, record in warm:
            self._home_watcher.add(folder, record.running)
        self._monitor.start(
            self._builder.host,
            self._builder.templates,
            lambda: self._disk_allocator.keep(self._repair, lambda: self._monitor.notice),
        )
        return found

    async def _open_again(self, handle: LocalHandle) -> None:
        sandbox_id = handle.record.spec.sandbox_id
        if handle.paused or handle.deleted:
            return
        try:
            async with asyncio.timeout(_FIND_AGAIN_SECONDS):
                await handle.open()
        except (errors.PaddockError, OSError) as error:  # one that does not answer keeps no other from being served
            log.warning("sandbox does not answer", sandbox_id=sandbox_id, problem=str(error))
            if self._handles.get(sandbox_id) is handle:  # to be taken up whole by whoever asks next
                del self._handles[sandbox_id]
                await handle.detach()

    async def _restock(self, folder: Path, record: SandboxRecord) -> None:
        """Made in advance by a server before this one, or beside it."""
        handle = self._hold(folder, record)
        try:
            if handle.watch(self._warm_lost):
                await handle.prepare()
                self._warm_machines.add(folder, record, handle)
                return
        except (errors.PaddockError, OSError) as error:
            log.warning("a machine made in advance does not answer", problem=str(error))
        await self._drop(folder, handle)

    def _held(self) -> Sequence[tuple[Path, SandboxRecord]]:
        return [(one.folder, one.record) for one in (*self._handles.values(), *self._warm_machines.machines())]

    def _warm_lost(self, handle: LocalHandle) -> None:
        self._warm_machines.lost(handle)
        self._cleanup.add(self._drop(handle.folder, handle))

    def _lost(self, handle: LocalHandle) -> None:
        self._cleanup.add(self._monitor.crashed(handle))

    def _hold(self, folder: Path, record: SandboxRecord) -> LocalHandle:
        backend = kind(record.spec)
        egress, trusted = self._egress_of(record), self._builder.trusted
        return LocalHandle(folder, record, self._clock, egress, self._output, backend, trusted, self._inside)

    def _egress_of(self, record: SandboxRecord) -> SandboxEgress:
        return SandboxEgress(record.spec.egress, self._reach, self._resolver, self._bandwidths.of(record.spec.owner_id))

    def _known(self, sandbox_id: str) -> SandboxRecord:
        record = SandboxRecord.load(self._dirs.folder(sandbox_id))
        if record is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return record

    @contextlib.asynccontextmanager
    async def _turn(self, sandbox_id: str) -> AsyncIterator[None]:
        await self._all_found.wait()
        async with self._locks.setdefault(sandbox_id, asyncio.Lock()):
            yield


@contextlib.contextmanager
def _host_disk_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise errors.HostDiskFull("The host's disk is full. Delete sandboxes, or make room on the host.") from error
