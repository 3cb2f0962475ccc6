"""One sandbox that this server holds on to: its record, the link to its agent, its way out, and word of its end."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from paddock import errors
from paddock.clock import Clock
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import MachineStats
from paddock.providers.docker.container import PROGRAMS
from paddock.providers.local import launch, outlet
from paddock.providers.local.outlet import Outlet
from paddock.providers.local.record import SOCKET, Record

_BASE = {"LC_CTYPE": "C.UTF-8", "TERM": "xterm-256color"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_A_USER = {"HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME"}
"""Variables that an image may set, but that depend on who runs a command."""


class Living:
    def __init__(
        self,
        folder: Path,
        record: Record,
        image_env: Sequence[str],
        clock: Clock,
        way_out: Outlet,
        spool_limit: int,
        disk: Callable[[], Awaitable[int]],
    ) -> None:
        """``disk`` measures how much of it is used."""
        self.folder = folder
        self.record = record
        self.paused = False
        self.deleted = False
        self.outlet = way_out
        self.disk_used = disk
        self._image_env = dict(pair.partition("=")[::2] for pair in image_env)
        self._clock = clock
        self._lifeline: socket.socket | None = None
        self._on_end: Callable[[Living], None] = lambda _: None
        self.machine = AgentMachine(
            record.spec.sandbox_id,
            self._connect,
            self._environment,
            self._stats,
            spool_limit,
            clock=clock,
            ready=self._ready,
        )

    def watch(self, ended: Callable[[Living], None]) -> bool:
        """Call back when its agent ends: a connection that nothing is said on closes then. False: it has ended."""
        self._on_end = ended
        if self._lifeline is not None:
            return self.alive()
        try:
            self._lifeline = launch.connect(self.folder, SOCKET)
        except errors.ProviderUnavailable:
            return False
        asyncio.get_running_loop().add_reader(self._lifeline, self._ended)
        return True

    def be(self, folder: Path, record: Record, way_out: Outlet) -> None:
        """What was made in advance is this sandbox from now on."""
        self.folder, self.record, self.outlet = folder, record, way_out
        self.machine.sandbox_id = record.spec.sandbox_id

    def alive(self) -> bool:
        """Asked of the kernel: word of its end may still be on its way to us."""
        if self._lifeline is None:
            return False
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN)
        return not poll.poll(0)

    async def let_go(self) -> None:
        """Close what this process holds. The sandbox lives on."""
        self._unwatch()
        await self.outlet.close()
        await self.machine.aclose()

    def _ended(self) -> None:
        self._unwatch()
        self._on_end(self)

    def _unwatch(self) -> None:
        if self._lifeline is not None:
            asyncio.get_running_loop().remove_reader(self._lifeline)
            self._lifeline.close()
            self._lifeline = None

    def _ready(self) -> None:
        if self.deleted:
            raise errors.SandboxNotFound.by_id(self.record.spec.sandbox_id)
        if self.paused:
            raise errors.Conflict(f"Sandbox {self.record.spec.sandbox_id!r} is paused: resume it first.")

    async def _connect(self) -> socket.socket:
        return launch.connect(self.folder, SOCKET)

    def _environment(self) -> Mapping[str, str]:
        """The image's own, so that its programs find what it put there; sudo is ours wherever the image has one."""
        image = {name: value for name, value in self._image_env.items() if name not in _OF_A_USER}
        path = f"{PROGRAMS}:{image.pop('PATH', '') or _PATH}"
        spec = self.record.spec
        return {**_BASE, **image, "PATH": path, **outlet.variables(spec.egress), **spec.env}

    async def _stats(self) -> MachineStats:
        usage = await self.machine.usage()
        resources = self.record.spec.resources
        return MachineStats(
            at=self._clock.now(),
            cpu_count=resources.cpu,
            cpu_seconds=usage.cpu_seconds,
            memory_used=usage.memory,
            memory_total=resources.memory_mb << 20,
            disk_used=await self.disk_used(),
            disk_total=resources.disk_mb << 20,
            process_count=usage.processes,
            memory_cache=0,
        )
