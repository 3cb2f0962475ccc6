"""One sandbox that this server holds on to: its record, the link to its agent, its way out, and word of its end."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from paddock import errors
from paddock.clock import Clock
from paddock.egress.bandwidth import Bandwidth
from paddock.machine.agent.environment import USER_PATH
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import MachineStats, OutputLimits
from paddock.providers.base import InsideService, MachineState
from paddock.providers.common import mounted_disk, sandbox_egress
from paddock.providers.common.disk import FOLDERS, IMAGE
from paddock.providers.common.exit_status import exit_status
from paddock.providers.common.inside_port import InsidePort
from paddock.providers.common.mounted_disk import MountedDisk
from paddock.providers.common.record import RunningProcess, SandboxRecord, start_time
from paddock.providers.common.sandbox_egress import SandboxEgress
from paddock.providers.local.isolation_backend import IsolationBackend
from paddock.providers.local.usage import FolderDisk, memory_below

log = structlog.get_logger(__name__)

_BASE_ENVIRONMENT = {
    "PATH": f"{USER_PATH}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/paddock/bin",
    "LC_CTYPE": "C.UTF-8",  # what matters of a locale here; every shell would load the other eleven parts of LANG
    "TERM": "xterm-256color",
}

_STOP_SECONDS = 15.0
"""For the agent to stop every process, which takes it milliseconds."""


class AgentSilent(errors.ProviderUnavailable):
    """The agent does not do what it is there for. Whatever has become of it, it can only be ended."""


class LocalHandle:
    def __init__(
        self,
        folder: Path,
        record: SandboxRecord,
        clock: Clock,
        sandbox_egress: SandboxEgress,
        output: OutputLimits,
        backend: type[IsolationBackend],
        trusted: Mapping[str, str],
        inside: InsideService | None = None,
    ) -> None:
        """``trusted``: the variables that name the certificate authorities."""
        self.folder = folder
        self.record = record
        self.paused = False
        self.deleted = False
        self.egress = sandbox_egress
        self._trusted = trusted
        self.inside_port = None if inside is None else InsidePort(inside, lambda: self.record.spec)
        self._clock = clock
        self._opening = asyncio.Lock()
        self._pidfd: int | None = None
        self._on_end: Callable[[LocalHandle], None] = lambda _: None
        self._transport = backend.way(lambda: self.folder)
        self._state = backend.state
        self._on_hosts_kernel = backend.on_hosts_kernel
        self._error_count: int | None = None
        self._oom_counts = (0, 0)
        self.folder_disk = FolderDisk()
        self.machine = AgentMachine(
            record.spec.sandbox_id,
            self._transport.connect,
            self._environment,
            self._stats,
            output,
            clock=clock,
            ready=self._ready,
            bridge=self._transport.bridge,
        )

    @property
    def running(self) -> RunningProcess:
        assert self.record.running is not None  # noqa: S101 - nothing else lives
        return self.record.running

    def watch(self, ended: Callable[[LocalHandle], None]) -> bool:
        """Call back when its first process ends. False when it has ended already."""
        self._on_end = ended
        if self._pidfd is not None:
            return self.alive()
        try:
            pidfd = os.pidfd_open(self.running.pid)
        except ProcessLookupError:
            return False
        if start_time(self.running.pid) != self.running.start_time:
            os.close(pidfd)
            return False
        self._pidfd = pidfd
        self._oom_counts = (kills := self._oom_kills(), kills)
        self.disk_failed()  # from now on that costs one read
        asyncio.get_running_loop().add_reader(pidfd, self._ended)
        return True

    async def prepare(self) -> None:
        """Whatever has to be asked of its agent, before it is anybody's. Also shows that the agent answers."""
        await self.egress.prepare(self.machine)
        await self.open_inside_port()

    def assign(self, folder: Path, record: SandboxRecord, bandwidth: Bandwidth) -> None:
        """What was made in advance is this sandbox from now on."""
        self.folder, self.record = folder, record
        self.machine.sandbox_id = record.spec.sandbox_id
        self.egress.assign(record.spec.egress, bandwidth)

    def alive(self) -> bool:
        """Asked of the kernel: word of its end may still be on its way to us."""
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def disk(self) -> MountedDisk | None:
        """Its disk as it is now; None where it has no image of its own, or has ended."""
        try:
            return mounted_disk.look(self._state(self.running.pid), self.folder / IMAGE) if self.alive() else None
        except OSError:
            return None

    def disk_failed(self) -> bool:
        """Whether its file system met an error and takes no more writes."""
        if self._error_count is None:
            if not (self.folder / IMAGE).exists() or not self.alive():
                return False
            try:
                self._error_count = mounted_disk.open_error_count(self._state(self.running.pid))
            except OSError:
                return False
        return mounted_disk.has_failed(self._error_count)

    async def open(self) -> None:
        """Its way out, and what is served inside. May be repeated."""
        async with self._opening:
            await self.egress.open(self.machine)
            await self.open_inside_port()

    async def open_inside_port(self) -> None:
        if self.inside_port is not None:
            await self.inside_port.open(self.machine)

    def see(self, record: SandboxRecord) -> None:
        """Another server on the same home may have paused or resumed it since: what its record says now."""
        self.paused = record.state() is MachineState.PAUSED
        if record.running is not None and record.running.stopped is not self.running.stopped:
            self.record = record

    async def freeze(self, *, by_group: bool) -> None:
        """By its control group, or where there is no freezer by signals, which is written down."""
        if self.paused:
            return
        if self.running.group is not None and by_group:
            await asyncio.to_thread(self.running.group.freeze)
        else:
            await self._stop_all()
            await self._write_stopped(True)
        self.paused = True

    async def thaw(self) -> None:
        was_paused, self.paused = self.paused, False
        if was_paused and self.running.stopped:
            await self.machine.continue_all()
            await self._write_stopped(False)
        elif was_paused and self.running.group is not None:
            await asyncio.to_thread(self.running.group.thaw)
        await self.open()

    def delete(self) -> None:
        """Its end is no news from now on, and whoever asks for it is told that it is gone."""
        self.deleted = True
        self._unwatch()

    async def detach(self) -> None:
        """Close what this process holds. The sandbox lives on."""
        self._unwatch()
        if self._error_count is not None:
            os.close(self._error_count)
            self._error_count = None
        await self.egress.close()
        if self.inside_port is not None:
            await self.inside_port.close()
        await self.machine.aclose()
        if self._transport.bridge is not None:
            await self._transport.bridge.close()

    async def _stop_all(self) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.machine.stop_all()
        except (TimeoutError, errors.PaddockError) as error:
            raise AgentSilent(f"The sandbox's agent could not stop its processes: {error or 'no answer'}") from error

    async def _write_stopped(self, stopped: bool) -> None:
        self.record = self.record.with_running(replace(self.running, stopped=stopped))
        await asyncio.to_thread(self.record.save, self.folder)

    def exit_status(self) -> int | None:
        """After its end; None where the kernel does not tell."""
        return None if self._pidfd is None else exit_status(self.running.pid, self._pidfd)

    def count_oom_kills(self) -> None:
        """From time to time, so that it can be told what was killed lately."""
        self._oom_counts = (self._oom_counts[1], self._oom_kills())

    def late_oom_kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory since the last count but one: the last
        may have been between such a kill and word of it."""
        return max(0, self._oom_kills() - self._oom_counts[0])

    def _oom_kills(self) -> int:
        running = self.record.running
        return 0 if running is None or running.group is None else running.group.oom_kills()

    def _ended(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
        self._on_end(self)

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _ready(self) -> None:
        if self.deleted:
            raise errors.SandboxNotFound.by_id(self.record.spec.sandbox_id)
        if self.paused:
            raise errors.Conflict(f"Sandbox {self.record.spec.sandbox_id!r} is paused: resume it first.")
        if self._error_count is not None and mounted_disk.has_failed(self._error_count):
            raise errors.DiskFailed(
                "The disk of this sandbox has failed and takes no more writes, as happens when the host's disk is "
                "full. It is repaired by itself as soon as the host has room; files that were on it are kept.",
                retry_after=5,
            )

    def _environment(self) -> Mapping[str, str]:
        spec = self.record.spec
        served = {} if self.inside_port is None else self.inside_port.variables()
        egress = sandbox_egress.variables(spec.egress)
        return {**_BASE_ENVIRONMENT, **self._trusted, **egress, **served, **spec.env}

    async def _stats(self) -> MachineStats:
        """The kernel's own numbers where there is a control group or an image; else what is counted from outside."""
        usage = await self.machine.usage()
        group = self.running.group
        resources = self.record.spec.resources
        memory = group.memory() if group else None
        if memory is None and self._on_hosts_kernel:
            memory = await asyncio.to_thread(memory_below, self.running.pid)
        disk_used = usage.disk_used
        if not (self.folder / IMAGE).exists():
            disk_used = await self.folder_disk.used(self.folder / FOLDERS, resources.disk_mb << 20)
        cpu = group.cpu_seconds() if group else None
        return MachineStats(
            at=self._clock.now(),
            cpu_count=resources.cpu,
            cpu_seconds=usage.cpu_seconds if cpu is None else cpu,
            memory_used=usage.memory if memory is None else memory,
            memory_total=resources.memory_mb << 20,
            disk_used=disk_used,
            disk_total=resources.disk_mb << 20,
            process_count=usage.processes,
            memory_cache=(group.memory_cache() if group else None) or 0,
        )
