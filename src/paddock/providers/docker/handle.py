"""One sandbox that this server holds on to: its record, the link to its agent, its way out, and word of its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from paddock import errors
from paddock.clock import Clock
from paddock.machine.agent.environment import USER_PATH
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import MachineStats, OutputLimits
from paddock.providers.base import InsideService
from paddock.providers.common import sandbox_egress
from paddock.providers.common.inside_port import InsidePort
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_egress import SandboxEgress
from paddock.providers.docker.agent_transport import ContainerTransport
from paddock.providers.docker.container import PROGRAMS

_BASE = {"LC_CTYPE": "C.UTF-8", "TERM": "xterm-256color"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_A_USER = {"HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME"}
"""Variables that an image may set, but that depend on who runs a command."""


class DockerHandle:
    def __init__(
        self,
        folder: Path,
        record: SandboxRecord,
        image_env: Sequence[str],
        clock: Clock,
        sandbox_egress: SandboxEgress,
        output: OutputLimits,
        disk: Callable[[], Awaitable[int]],
        way: Callable[[Callable[[], Path]], ContainerTransport],
        inside: InsideService | None = None,
    ) -> None:
        """``disk`` measures how much of it is used; ``way`` leads to the agent of the sandbox in a folder."""
        self.folder = folder
        self.record = record
        self.paused = False
        self.deleted = False
        self.egress = sandbox_egress
        self.disk_used = disk
        self._image_env = dict(pair.partition("=")[::2] for pair in image_env)
        self._clock = clock
        self._transport = way(lambda: self.folder)
        self._on_end: Callable[[DockerHandle], None] = lambda _: None
        self.inside_port = None if inside is None else InsidePort(inside, lambda: self.record.spec)
        self.machine = AgentMachine(
            record.spec.sandbox_id,
            self._transport.link,
            self._environment,
            self._stats,
            output,
            clock=clock,
            ready=self._ready,
            bridge=self._transport.bridge,
        )

    def watch(self, ended: Callable[[DockerHandle], None]) -> bool:
        """Call back when its agent ends. False: it has ended."""
        self._on_end = ended
        return self._transport.watch(lambda: self._on_end(self))

    async def open(self) -> None:
        """Its way out, and what is served inside. Also shows that an agent far away answers. May be repeated."""
        if self._transport.bridge is not None:
            await self.machine.usage()
        await self.egress.open(self.machine)
        if self.inside_port is not None:
            await self.inside_port.open(self.machine)

    def assign(self, folder: Path, record: SandboxRecord, sandbox_egress: SandboxEgress) -> None:
        """What was made in advance is this sandbox from now on."""
        self.folder, self.record, self.egress = folder, record, sandbox_egress
        self.machine.sandbox_id = record.spec.sandbox_id

    def alive(self) -> bool:
        return self._transport.alive()

    async def detach(self) -> None:
        """Close what this process holds. The sandbox lives on."""
        await self.egress.close()
        if self.inside_port is not None:
            await self.inside_port.close()
        await self.machine.aclose()
        await self._transport.close()

    def _ready(self) -> None:
        if self.deleted:
            raise errors.SandboxNotFound.by_id(self.record.spec.sandbox_id)
        if self.paused:
            raise errors.Conflict(f"Sandbox {self.record.spec.sandbox_id!r} is paused: resume it first.")

    def _environment(self) -> Mapping[str, str]:
        """The image's own, so that its programs find what it put there; sudo is ours wherever the image has one."""
        image = {name: value for name, value in self._image_env.items() if name not in _OF_A_USER}
        path = f"{PROGRAMS}:{USER_PATH}:{image.pop('PATH', '') or _PATH}"
        spec = self.record.spec
        served = {} if self.inside_port is None else self.inside_port.variables()
        return {**_BASE, **image, "PATH": path, **sandbox_egress.variables(spec.egress), **served, **spec.env}

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
