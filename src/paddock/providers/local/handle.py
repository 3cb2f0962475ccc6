"""A sandbox of processes on this host: its first process, its freezer, its disk, and what it uses."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from paddock import errors
from paddock.machine.agent.environment import USER_PATH
from paddock.machine.agent.replies import AgentUsage
from paddock.machine.base import MachineStats
from paddock.providers.base import MachineState
from paddock.providers.common import mounted_disk
from paddock.providers.common.agent_handle import BASE_ENVIRONMENT, AgentHandle, HandleServices, image_variables
from paddock.providers.common.confinement import INSIDE
from paddock.providers.common.disk import FOLDERS, IMAGE
from paddock.providers.common.disk_limit import DiskSize, TooDeep
from paddock.providers.common.exit_status import exit_status
from paddock.providers.common.mounted_disk import MountedDisk
from paddock.providers.common.record import RunningProcess, SandboxRecord, start_time
from paddock.providers.local import usage
from paddock.providers.local.isolation_backend import IsolationBackend

_STOP_TIMEOUT_S = 15.0
"""For the agent to stop every process, which takes it milliseconds."""


class AgentSilent(errors.ProviderUnavailable):
    """The agent does not do what it is there for. Whatever has become of it, it can only be ended."""


class LocalHandle(AgentHandle):
    def __init__(
        self,
        folder: Path,
        record: SandboxRecord,
        services: HandleServices,
        backend: type[IsolationBackend],
        trusted: Mapping[str, str],
        image: Mapping[str, str],
    ) -> None:
        """``trusted``: the variables that name the certificate authorities. ``image``: those of its image."""
        transport = backend.transport(lambda: self.folder)
        super().__init__(folder, record, services, transport.connect, transport.bridge)
        variables = image_variables(image)
        if path := variables.pop("PATH", ""):
            variables["PATH"] = f"{USER_PATH}:{path}:{INSIDE}/bin"
        self._variables = {**BASE_ENVIRONMENT, **variables, **trusted}
        self._pidfd: int | None = None
        self._state = backend.state
        self._on_hosts_kernel = backend.on_hosts_kernel
        self._error_count: int | None = None
        self._oom_counts = (0, 0)
        self.disk_size = DiskSize(lambda: asyncio.to_thread(usage.tree_size, self.folder / FOLDERS))

    def _base_environment(self) -> Mapping[str, str]:
        return self._variables

    @property
    def running(self) -> RunningProcess:
        assert self.record.running is not None  # noqa: S101 - nothing else lives
        return self.record.running

    def watch(self, ended: Callable[[LocalHandle], None]) -> bool:
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

    def alive(self) -> bool:
        """Asked of the kernel."""
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

    def refresh(self, record: SandboxRecord, state: MachineState) -> None:
        super().refresh(record, state)
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

    async def detach(self) -> None:
        self._unwatch()
        if self._error_count is not None:
            os.close(self._error_count)
            self._error_count = None
        await super().detach()

    async def _stop_all(self) -> None:
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
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
        super()._ready()
        if self._error_count is not None and mounted_disk.has_failed(self._error_count):
            raise errors.DiskFailed(
                "The disk of this sandbox has failed and takes no more writes, as happens when the host's disk is "
                "full. It is repaired by itself as soon as the host has room; files that were on it are kept.",
                retry_after=5,
            )

    async def _disk_used(self, counted: AgentUsage) -> int:
        if (self.folder / IMAGE).exists():
            return counted.disk_used
        try:
            return await self.disk_size.recent()
        except TooDeep:
            return self.record.spec.resources.disk_mb << 20
        except OSError as error:
            raise errors.ProviderUnavailable(f"The sandbox's disk could not be measured: {error}") from error

    async def _stats(self) -> MachineStats:
        """The kernel's own numbers where there is a control group; else what is counted from outside."""
        counted, group = await super()._stats(), self.running.group
        memory = group.memory() if group else None
        if memory is None and self._on_hosts_kernel:
            memory = await asyncio.to_thread(usage.memory_below, self.running.pid)
        cpu = group.cpu_seconds() if group else None
        return replace(
            counted,
            cpu_seconds=counted.cpu_seconds if cpu is None else cpu,
            memory_used=counted.memory_used if memory is None else memory,
            memory_cache=(group.memory_cache() if group else None) or 0,
        )
