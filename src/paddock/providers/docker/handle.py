"""A sandbox in a container: the environment of its image, the size of its layer, and how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.machine.agent.environment import USER_PATH
from paddock.machine.agent.replies import AgentUsage
from paddock.providers.common.agent_handle import BASE_ENVIRONMENT, AgentHandle, HandleServices, image_variables
from paddock.providers.common.disk_limit import DiskSize
from paddock.providers.common.exit_status import describe
from paddock.providers.common.record import SandboxRecord
from paddock.providers.docker.agent_transport import ContainerTransport
from paddock.providers.docker.container import PROGRAMS
from paddock.providers.docker.engine import DockerEngine, EngineNotFound

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
END_TIMEOUT_S = 10.0
"""The engine hears of the end of a process a moment after its sockets are closed."""
_BY_SIGNAL = 128


class DockerHandle(AgentHandle):
    def __init__(
        self,
        folder: Path,
        record: SandboxRecord,
        services: HandleServices,
        transport: Callable[[Callable[[], Path]], ContainerTransport],
        engine: DockerEngine,
        image_env: Sequence[str],
    ) -> None:
        """``transport`` leads to the agent of the sandbox in a directory."""
        self._transport = transport(lambda: self.folder)
        super().__init__(folder, record, services, self._transport.connect, self._transport.bridge)
        self._engine = engine
        self._image_env = dict(pair.partition("=")[::2] for pair in image_env)
        self.disk_size = DiskSize(self._layer_size)

    def watch(self, ended: Callable[[DockerHandle], None]) -> bool:
        self._on_end = ended
        return self._transport.watch(lambda: self._on_end(self))

    def alive(self) -> bool:
        return self._transport.alive()

    async def prepare(self) -> None:
        await self.machine.usage()  # the link stands, and the agent answers

    async def open(self) -> None:
        """Also shows that an agent far away answers."""
        if self._transport.bridge is not None:
            await self.machine.usage()
        await super().open()

    async def detach(self) -> None:
        await super().detach()
        await self._transport.close()

    async def kill_processes(self) -> int:
        """Those that were started by its agent."""
        running = [process for process in await self.machine.processes() if process.running]
        for process in running:
            await self.machine.signal(process.process_id, signal.SIGKILL)
        return len(running)

    async def crash_report(self) -> Mapping[str, Any] | None:
        return await crash_report(self._engine, self.record.reference)

    async def _layer_size(self) -> int:
        found = await self._engine.inspect(self.record.reference, size=True)
        return int((found or {}).get("SizeRw") or 0)

    def _base_environment(self) -> Mapping[str, str]:
        """The image's own, so that its programs find what it put there; sudo is ours wherever the image has one."""
        image = image_variables(self._image_env)
        path = f"{PROGRAMS}:{USER_PATH}:{image.pop('PATH', '') or _PATH}"
        return {**BASE_ENVIRONMENT, **image, "PATH": path}

    async def _disk_used(self, counted: AgentUsage) -> int:
        return await self.disk_size.recent()


async def crash_report(engine: DockerEngine, reference: str) -> Mapping[str, Any] | None:
    """How a container ended that nobody here has ended: the data of the event, as far as its engine tells. None: it
    runs, and only the connection to it was cut; or it was removed."""
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await engine.ended(reference)
    except (TimeoutError, EngineNotFound):
        return None
    found = await engine.inspect(reference)
    if found is None or found["State"].get("Running"):  # or somebody has started it again
        return None
    code, oom_killed = int(found["State"].get("ExitCode", -1)), bool(found["State"].get("OOMKilled"))
    killed = code == _BY_SIGNAL + signal.SIGKILL
    reason = "out_of_memory" if killed and oom_killed else "killed" if killed else "crashed"
    why = " The kernel had killed processes in it for want of memory." if oom_killed else ""
    message = f"The sandbox's agent {_ended(code)}.{why} Its files are kept; the next use starts it again."
    return {"reason": reason, "exit_code": code, "oom_killed": oom_killed, "message": message}


def _ended(code: int) -> str:
    number = code - _BY_SIGNAL
    by_signal = number in set(signal.Signals)
    return describe(number if by_signal else (code & 0xFF) << 8)
