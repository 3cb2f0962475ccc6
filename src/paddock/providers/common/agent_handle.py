"""One sandbox that this server is connected to: its record, the link to its agent, its egress, notice of its end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paddock import errors
from paddock.clock import Clock
from paddock.egress.acceptor import Acceptor
from paddock.egress.bandwidth import Bandwidth
from paddock.http1.stream_socket import StreamSocket
from paddock.machine.agent.connection import Connect
from paddock.machine.agent.environment import USER_PATH
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.agent.replies import AgentUsage
from paddock.machine.base import MachineStats, OutputLimits
from paddock.providers.base import InsideService, MachineState, SandboxSpec
from paddock.providers.common import sandbox_egress
from paddock.providers.common.record import SandboxRecord
from paddock.providers.common.sandbox_egress import SandboxEgress

if TYPE_CHECKING:
    from paddock.machine.agent.bridge import AgentBridge

BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": f"{USER_PATH}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/paddock/bin",
    "LC_CTYPE": "C.UTF-8",  # what matters of a locale here; every shell would load the other eleven parts of LANG
    "TERM": "xterm-256color",
}
_OF_A_USER = {"HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME"}
"""Variables that an image may set, but that depend on who runs a command."""
_MAX_INSIDE_CONNECTIONS = 64
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


def image_variables(image: Mapping[str, str]) -> dict[str, str]:
    """Those of an image that commands get, so that its programs find what it put there."""
    return {name: value for name, value in image.items() if name and name not in _OF_A_USER}


@dataclass(frozen=True, slots=True)
class HandleServices:
    """What a provider gives to each of its handles."""

    clock: Clock
    egress: SandboxEgress
    output: OutputLimits
    inside: InsideService | None


class AgentHandle(ABC):
    def __init__(
        self,
        folder: Path,
        record: SandboxRecord,
        services: HandleServices,
        connect: Connect,
        bridge: AgentBridge | None = None,
    ) -> None:
        """``bridge``: where no descriptor can be handed over."""
        self.folder = folder
        self.record = record
        self.paused = False
        self.deleted = False
        """Its end is not reported, and callers are told that it does not exist."""
        self.egress = services.egress
        self._inside_port = None if services.inside is None else InsidePort(services.inside, lambda: self.record.spec)
        self._clock = services.clock
        self._bridge = bridge
        self._opening = asyncio.Lock()
        self._on_end: Callable[[Any], None] = lambda _: None
        self.machine = AgentMachine(
            record.spec.sandbox_id,
            connect,
            self._environment,
            self._stats,
            services.output,
            clock=services.clock,
            ready=self._ready,
            bridge=bridge,
        )

    @abstractmethod
    def watch(self, ended: Callable[[Self], None]) -> bool:
        """Call back when its agent ends. False: it has ended already."""

    @abstractmethod
    def alive(self) -> bool:
        """As it is now: the notice of its end may not have arrived yet."""

    async def prepare(self) -> None:
        """Ask of the agent of a warm machine whatever has to be asked before a sandbox uses it. Also shows that it
        answers."""
        await self.egress.prepare(self.machine)
        await self._open_inside_port()

    def assign(self, folder: Path, record: SandboxRecord, bandwidth: Bandwidth) -> None:
        """A warm machine becomes this sandbox."""
        self.folder, self.record = folder, record
        self.machine.sandbox_id = record.spec.sandbox_id
        self.egress.assign(record.spec.egress, bandwidth)

    async def open(self) -> None:
        """Its egress, and what is served inside. May be repeated."""
        async with self._opening:
            await self.egress.open(self.machine)
            await self._open_inside_port()

    def refresh(self, record: SandboxRecord, state: MachineState) -> None:
        """Another server on the same home may have paused or resumed it since."""
        self.paused = state is MachineState.PAUSED

    async def detach(self) -> None:
        """Close what this process holds. The sandbox keeps running."""
        await self.egress.close()
        if self._inside_port is not None:
            await self._inside_port.close()
        await self.machine.aclose()
        if self._bridge is not None:
            await self._bridge.close()

    async def _open_inside_port(self) -> None:
        if self._inside_port is not None:
            await self._inside_port.open(self.machine)

    def _ready(self) -> None:
        if self.deleted:
            raise errors.SandboxNotFound.by_id(self.record.spec.sandbox_id)
        if self.paused:
            raise paused_error(self.record.spec.sandbox_id)

    def _base_environment(self) -> Mapping[str, str]:
        return BASE_ENVIRONMENT

    def _environment(self) -> Mapping[str, str]:
        spec = self.record.spec
        served = {} if self._inside_port is None else self._inside_port.variables()
        return {**self._base_environment(), **sandbox_egress.variables(spec.egress), **served, **spec.env}

    async def _disk_used(self, counted: AgentUsage) -> int:
        return counted.disk_used

    async def _stats(self) -> MachineStats:
        """As the agent counts."""
        usage = await self.machine.usage()
        resources = self.record.spec.resources
        return MachineStats(
            at=self._clock.now(),
            cpu_count=resources.cpu,
            cpu_seconds=usage.cpu_seconds,
            memory_used=usage.memory,
            memory_total=resources.memory_mb << 20,
            disk_used=await self._disk_used(usage),
            disk_total=resources.disk_mb << 20,
            process_count=usage.processes,
            memory_cache=0,
        )


class InsidePort:
    """A port inside one sandbox that this process serves, on a listener that the agent creates there and keeps.

    May be opened before the machine is assigned to a sandbox: the spec is read for each connection.
    """

    def __init__(self, service: InsideService, spec: Callable[[], SandboxSpec]) -> None:
        self._service = service
        self._spec = spec
        self._acceptor: Acceptor | None = None

    async def open(self, machine: AgentMachine) -> None:
        """Idempotent. If a user's program already has the port, it keeps it."""
        if self._acceptor is not None:
            return
        try:
            listener = await machine.listen_socket(self._service.port)
        except errors.Conflict:
            return
        self._acceptor = Acceptor(listener, self._serve, _MAX_INSIDE_CONNECTIONS, _BUSY)
        self._acceptor.start()

    async def close(self) -> None:
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            await acceptor.close()

    def variables(self) -> Mapping[str, str]:
        return self._service.variables(self._spec().key)

    async def _serve(self, wire: StreamSocket) -> None:
        spec = self._spec()
        if spec.key:  # a warm machine without a sandbox has no key yet
            await self._service.serve(spec.sandbox_id, wire.sock)


def paused_error(sandbox_id: str) -> errors.Conflict:
    return errors.Conflict(f"Sandbox {sandbox_id!r} is paused: resume it first.")
