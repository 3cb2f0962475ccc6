"""The local provider: sandboxes on this machine, with nothing but the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import structlog

from paddock import errors
from paddock.clock import Clock
from paddock.images.store import in_use
from paddock.machine.base import OutputLimits
from paddock.machine.threads import in_thread
from paddock.providers.base import (
    CRASHED,
    Capacity,
    IsolationReport,
    MachineInfo,
    MachineState,
    SandboxSpec,
    Shape,
    Storage,
)
from paddock.providers.common.agent_handle import HandleServices, paused_error
from paddock.providers.common.agent_provider import AgentProvider
from paddock.providers.common.capacity import host_capacity
from paddock.providers.common.exit_status import describe
from paddock.providers.common.record import RECORD, SandboxRecord
from paddock.providers.local.builder import LocalBuilder, kind
from paddock.providers.local.disk_allocator import DiskAllocator, DiskPolicy
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.providers.local.handle import AgentSilent, LocalHandle
from paddock.providers.local.home_watcher import HomeWatcher
from paddock.providers.local.isolation_backend import NamespaceBackend
from paddock.providers.local.monitor import SandboxMonitor
from paddock.settings import Settings

log = structlog.get_logger(__name__)


class LocalProvider(AgentProvider[LocalHandle]):
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
        super().__init__(root, clock, reachable=reachable, output=output, made=made)
        disks = disks or DiskPolicy()
        self._disk_allocator = DiskAllocator(self._dirs.root, disks, self._all_handles)
        templates = templates or root.absolute().parent / "templates"
        self._builder = LocalBuilder(self._dirs, self._disk_allocator.reserve, templates, addons, runsc, extra_ca)
        self._home_watcher = HomeWatcher(
            self._dirs.root,
            self._builder.programs.launcher,
            lambda: [(one.folder, one.record) for one in self._all_handles()],
        )
        self._builder.on_start = self._home_watcher.add
        self._monitor = SandboxMonitor(self._dirs.root, disks.reserve_mb, self._registry.values, lambda: self._notice)

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> Self:
        home = settings.home.absolute()
        return cls(
            home / "local",
            clock,
            addons=home / "addons",
            extra_ca=settings.extra_ca,
            reachable=settings.egress_reachable,
            runsc=RunscSettings(settings.runsc, settings.runsc_platform),
            output=OutputLimits(settings.output_spool, settings.stall_timeout),
            disks=DiskPolicy(settings.disk_reserve_mb, settings.disk_overcommit),
        )

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._builder.close)

    async def templates(self) -> list[str]:
        return self._builder.templates.names()

    async def has_template(self, template_id: str) -> bool:
        return self._builder.templates.has(template_id)

    async def capacity(self) -> Capacity:
        return await asyncio.to_thread(host_capacity, self._dirs.root)

    async def storage(self) -> Storage:
        return await asyncio.to_thread(self._disk_allocator.storage)

    async def isolation(self, sandbox_id: str) -> IsolationReport:
        return self._builder.backend(self._registry.known(sandbox_id).spec).report()

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        with _host_disk_full():
            return await super().create(spec)

    async def list(self) -> list[MachineInfo]:
        return await asyncio.to_thread(lambda: [one.found(one.process_state()) for _, one in self._dirs.sandboxes()])

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        async with self._registry.lock(sandbox_id):
            record = self._registry.known(sandbox_id)
            if not keep_memory:
                await self._halt(record)
                return
            handle = await self._attached(record, answering=False)
            if handle is None:
                return  # files only: that is what paused means
            handle.refresh(record, record.process_state())
            try:
                await handle.freeze(by_group=self._builder.host.cgroups.freezer is not None)
            except AgentSilent as error:
                # What cannot be stopped by asking is ended from outside: nobody's code may run on for ever.
                log.warning("paused by its files alone", sandbox_id=sandbox_id, problem=error.message)
                await self._halt(record)

    async def resume(self, sandbox_id: str) -> None:
        async with self._registry.lock(sandbox_id):
            record = self._registry.known(sandbox_id)
            handle = await self._attached(record, answering=False)
            if handle is None:
                await self._restart(record)
            else:
                handle.refresh(record, record.process_state())
                await handle.thaw()
                await self._disk_allocator.wake()

    async def delete(self, sandbox_id: str) -> None:
        await self._registry.all_found.wait()
        # Who holds its lock, and waits for its agent, hears of its end at once.
        with contextlib.suppress(errors.SandboxNotFound):
            self._builder.kill_first_process(self._dirs.folder(sandbox_id))
        await super().delete(sandbox_id)

    def shape_of(self, spec: SandboxSpec) -> Shape | None:
        adjusts = kind(spec) is NamespaceBackend and self._builder.host.adjusts(spec.resources)
        return super().shape_of(spec) if adjusts else None

    async def warm(self, shape: Shape) -> None:
        await self._registry.all_found.wait()
        self._disk_allocator.admit(shape.disk_mb)
        await super().warm(shape)
        await self._disk_allocator.share_out()

    # What is supplied to the base

    async def _prepare(self) -> None:
        await asyncio.to_thread(self._builder.prepare)

    async def _recover(self, records: Sequence[SandboxRecord]) -> Callable[[SandboxRecord], MachineState | None]:
        for folder in await asyncio.to_thread(self._builder.clean_up, records):
            self._cleanup.remove(folder)  # with as many files as a sandbox liked: nobody waits for that
        self._home_watcher.start()
        return lambda record: record.process_state() if record.running is not None and record.running.alive() else None

    def _start_watching(self, found: Sequence[tuple[Path, SandboxRecord]]) -> None:
        for folder, record in found:
            self._home_watcher.add(folder, record.running)
        self._monitor.start(
            self._builder.host,
            self._builder.templates,
            lambda: self._disk_allocator.keep(self._repair, lambda: self._notice),
        )

    async def _stop_watching(self) -> None:
        await self._monitor.close()
        self._home_watcher.close()

    def _new_handle(self, folder: Path, record: SandboxRecord, services: HandleServices) -> LocalHandle:
        image = in_use(folder)
        env = image.env if image is not None else {}
        return LocalHandle(folder, record, services, kind(record.spec), self._builder.trusted, env)

    def _require(self, spec: SandboxSpec) -> None:
        self._builder.require(spec)
        self._disk_allocator.admit(spec.resources.disk_mb)

    async def _start(
        self, draft: Path, record: SandboxRecord, publish: Callable[[Path], Path]
    ) -> tuple[Path, SandboxRecord]:
        return await self._builder.start(draft, record, publish)

    async def _make(self, spec: SandboxSpec) -> LocalHandle:
        handle = await super()._make(spec)
        await self._disk_allocator.share_out()  # before anybody can use it
        return handle

    async def _claim(self, spec: SandboxSpec) -> LocalHandle | None:
        if (handle := await super()._claim(spec)) is not None:
            await self._disk_allocator.wake()
        return handle

    def _usable(self, handle: LocalHandle) -> bool:
        return super()._usable(handle) and not handle.disk_failed() and not self._is_outdated(handle)

    def _is_outdated(self, handle: LocalHandle) -> bool:
        try:
            made_at = (handle.folder / RECORD).stat().st_mtime
        except OSError:
            return True
        return self._builder.templates.is_outdated(handle.record.spec.template_id, made_at, handle.folder)

    async def _set_limits(self, record: SandboxRecord) -> bool:
        if record.running is not None and record.running.group is not None:
            record.running.group.limit(record.spec.resources)
        return True

    async def _state(self, record: SandboxRecord) -> MachineState:
        return record.process_state()

    async def _states(self) -> Mapping[str, MachineState]:
        return {one.reference: one.process_state() for _, one in self._dirs.sandboxes()}

    async def _run(self, record: SandboxRecord) -> LocalHandle:
        return await self._attached(record) or await self._restart(record)

    async def _attached(self, record: SandboxRecord, *, answering: bool = True) -> LocalHandle | None:
        """None where its processes have ended. Another server on this home may have started them."""
        handle = self._registry.get(record.spec.sandbox_id)
        if handle is not None and handle.alive():
            return handle
        if record.running is None or not record.running.alive():
            return None
        paused = record.process_state() is MachineState.PAUSED
        return await self._registry.adopt(record, paused=paused, answering=answering)

    async def _reach(self, record: SandboxRecord) -> LocalHandle:
        if (handle := await self._attached(record)) is not None:
            return handle
        if record.running is None or record.running.stopped:
            raise paused_error(record.spec.sandbox_id)
        log.warning("sandbox had ended; starting it again from its files", sandbox_id=record.spec.sandbox_id)
        return await self._restart(record)

    async def _restart(self, record: SandboxRecord, *, failed: bool = False) -> LocalHandle:
        """Its processes are gone (a reboot, or somebody ended them); its files are not. ``failed``: its file system
        met an error, and its processes may be there yet."""
        folder = self._dirs.folder(record.spec.sandbox_id)
        await self._registry.discard(record.spec.sandbox_id)
        await asyncio.to_thread(self._builder.reap, folder, record, failed=failed)
        _, record = await self._builder.start(folder, record.with_running(None), lambda made: made)
        try:
            handle = await self._registry.adopt(record)
            await self._disk_allocator.share_out()
            await handle.machine.usage()
        except errors.ProviderTimeout:
            raise
        except errors.ProviderUnavailable:
            await asyncio.to_thread(self._builder.reap, folder, record)
            raise errors.ProviderRefused("It ends at once: what is on its disk keeps it from running.") from None
        return handle

    async def _halt(self, record: SandboxRecord) -> None:
        """End its processes and keep its files, written down so that nobody takes it for one that crashed."""
        await self._registry.discard(record.spec.sandbox_id)
        await asyncio.to_thread(self._builder.halt, self._dirs.folder(record.spec.sandbox_id), record)

    async def _repair(self, handle: LocalHandle) -> bool:
        """Of one whose file system failed: check it, and start afresh. False where it is not there any more."""
        if self._warm_machines.drop(handle):
            return False
        sandbox_id = handle.record.spec.sandbox_id
        async with self._registry.lock(sandbox_id):
            if self._registry.get(sandbox_id) is not handle or not handle.disk_failed():
                return False
            if not handle.paused:
                await self._restart(handle.record, failed=True)
                return True
            await self._halt(handle.record)
            await asyncio.to_thread(self._builder.reap, handle.folder, handle.record.with_running(None), failed=True)
            return True

    async def _end(self, record: SandboxRecord) -> None:
        await asyncio.to_thread(self._builder.end, record)

    async def _delete(self, folder: Path, known: SandboxRecord | None) -> None:
        """The directory first: what is in the trash is ended by whoever starts next, if not by this."""
        gone = await self._discard(folder, known)
        await asyncio.to_thread(self._builder.end_discarded, folder.name, gone)

    async def _before_warm(self) -> None:
        """Another server may not have seen what has become private since it made them."""
        await in_thread(self._builder.templates.hide_private_files)

    async def _report_crash(self, handle: LocalHandle) -> None:
        """With why its first process ended, and with it all of them, as far as the kernel tells."""
        sandbox_id = handle.record.spec.sandbox_id
        status, oom_kills = handle.exit_status(), handle.late_oom_kills()
        how = "ended" if status is None else describe(status)
        by_kill = status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
        reason = "out_of_memory" if by_kill and oom_kills else "killed" if by_kill else "crashed"
        why = f"; the kernel had just killed {oom_kills} processes in it for want of memory" if oom_kills else ""
        message = f"The sandbox's agent {how}{why}. Its files are kept; the next use starts it again."
        log.warning("sandbox ended", sandbox_id=sandbox_id, reason=reason, status=status, oom_kills=oom_kills)
        await self._notice(sandbox_id, CRASHED, {"reason": reason, "oom_kills": oom_kills, "message": message})


@contextlib.contextmanager
def _host_disk_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise errors.HostDiskFull("The host's disk is full. Delete sandboxes, or make room on the host.") from error
