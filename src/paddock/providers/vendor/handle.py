"""One attached machine at the vendor: the transport to its agent, and the Machine over it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace

from paddock import errors
from paddock.clock import Clock
from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint, BridgeRefused
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import MachineStats, OutputLimits
from paddock.providers.base import MachineState
from paddock.providers.common.agent_handle import BASE_ENVIRONMENT, paused_error
from paddock.providers.vendor.base import Vendor, VendorMachine
from paddock.providers.vendor.installation import install
from paddock.providers.vendor.metadata import MachineMetadata

_REPLY_TIMEOUT_S = 45.0
"""Of a call over the network; the first one may include installing the agent."""


class VendorHandle:
    def __init__(
        self, found: VendorMachine, kept: MachineMetadata, vendor: Vendor, clock: Clock, output: OutputLimits
    ) -> None:
        self.kept = kept
        self.paused = found.state is MachineState.PAUSED
        self.deleted = False
        self.found = found
        self._vendor = vendor
        self._clock = clock
        self._token = vendor.secret(f"bridge {kept.sandbox_id}")
        self._way: BridgeEndpoint | None = None
        self._installing = asyncio.Lock()
        self._bridge = AgentBridge(self._endpoint)
        self.machine = AgentMachine(
            kept.sandbox_id,
            self._connect,
            self._environment,
            self._stats,
            output,
            clock=clock,
            reply_seconds=_REPLY_TIMEOUT_S,
            ready=self._ready,
            bridge=self._bridge,
        )

    @property
    def reference(self) -> str:
        return self.found.reference

    async def disconnect(self) -> None:
        """The machine was paused: cut all connections, so that none is used after a resume."""
        self._way = None
        await self._bridge.cut()

    async def wake(self) -> None:
        """The machine runs, perhaps restarted. Returns when its agent answers."""
        if self.paused:
            await self.disconnect()
        self.paused = False
        self.found = replace(self.found, state=MachineState.RUNNING)
        await self.machine.usage()

    async def detach(self) -> None:
        """Close what this process holds. The machine keeps running."""
        await self.machine.aclose()
        await self._bridge.close()

    def _ready(self) -> None:
        if self.deleted:
            raise errors.SandboxNotFound.by_id(self.kept.sandbox_id)
        if self.paused:
            raise paused_error(self.kept.sandbox_id)

    async def _endpoint(self) -> BridgeEndpoint:
        if self._way is None:
            self._way = await self._vendor.endpoint(self.reference)
        return BridgeEndpoint(self._way.url, {**self._way.headers, TOKEN_HEADER: self._token})

    async def _connect(self) -> socket.socket:
        """A link to the agent. If there is none, checks the machine at the vendor, and installs the agent if it
        runs."""
        try:
            return await self._bridge.link()
        except BridgeRefused:
            self._way = None
        await self._check_machine()
        async with self._installing:
            await install(self._vendor, self.reference, self._token)
        return await self._bridge.link()

    async def _check_machine(self) -> None:
        """Raises if the machine is gone or paused."""
        found = await self._vendor.get(self.reference)
        if found is None:
            self.deleted = True
        else:
            self.found, self.paused = found, found.state is MachineState.PAUSED
        self._ready()

    def _environment(self) -> Mapping[str, str]:
        return {**BASE_ENVIRONMENT, **self.kept.env}

    async def _stats(self) -> MachineStats:
        usage = await self.machine.usage()
        return MachineStats(
            at=self._clock.now(),
            cpu_count=self.found.cpu,
            cpu_seconds=usage.cpu_seconds,
            memory_used=usage.memory,
            memory_total=self.found.memory_mb << 20,
            disk_used=usage.disk_used,
            disk_total=usage.disk_total,
            process_count=usage.processes,
        )
