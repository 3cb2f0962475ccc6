"""How this server reaches the agent of a container: near, by descriptors; or far, through the engine alone."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from paddock import errors
from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint, BridgeRefused
from paddock.machine.agent.multiplexer import Multiplexer
from paddock.providers.common import launch
from paddock.providers.common.record import SOCKET
from paddock.providers.docker.container import FAR_COMMAND
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from paddock.providers.docker.exec import EngineExec

_START_TIMEOUT_S = 30.0
"""For an agent that was started this moment to listen."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.5


class ContainerTransport(ABC):
    bridge: AgentBridge | None = None
    """Where descriptors do not pass."""

    @abstractmethod
    def watch(self, ended: Callable[[], None]) -> bool:
        """Call back when the agent ends. False: it has ended."""

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    async def connect(self) -> socket.socket:
        """A new connection to the agent."""

    @abstractmethod
    async def close(self) -> None: ...


class SocketTransport(ContainerTransport):
    """By a socket in the sandbox's folder, which the agent has listened on since it started."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._lifeline: socket.socket | None = None

    def watch(self, ended: Callable[[], None]) -> bool:
        """A connection that nothing is said on closes with the agent."""
        if self._lifeline is not None:
            return self.alive()
        try:
            self._lifeline = launch.connect(self._folder(), SOCKET)
        except errors.ProviderUnavailable:
            return False

        def lost() -> None:
            self._unwatch()
            ended()

        asyncio.get_running_loop().add_reader(self._lifeline, lost)
        return True

    def alive(self) -> bool:
        """Asked of the kernel: the notice of its end may not have arrived yet."""
        if self._lifeline is None:
            return False
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN)
        return not poll.poll(0)

    async def connect(self) -> socket.socket:
        return launch.connect(self._folder(), SOCKET)

    async def close(self) -> None:
        self._unwatch()

    def _unwatch(self) -> None:
        if self._lifeline is not None:
            asyncio.get_running_loop().remove_reader(self._lifeline)
            self._lifeline.close()
            self._lifeline = None


class ExecTransport(ContainerTransport):
    """By one program that the engine runs inside, the agent's trunk, which carries all connections to its bridge."""

    def __init__(self, engine: DockerEngine, container: str, token: str) -> None:
        self._engine = engine
        self._container = container
        self._token = token
        self._multiplexer: Multiplexer | None = None
        self._opening = asyncio.Lock()
        self._end: asyncio.Task[None] | None = None
        self.bridge: AgentBridge = AgentBridge(self._endpoint)

    def watch(self, ended: Callable[[], None]) -> bool:
        """The engine says when; one that was stopped itself cannot, so then its state must be asked for anew."""
        if self._end is None:
            self._end = asyncio.create_task(self._wait(ended))
        return self.alive()

    def alive(self) -> bool:
        return self._end is not None and not self._end.done()

    async def connect(self) -> socket.socket:
        """One that was started this moment gets the time that it needs."""
        pause = _FIRST_PAUSE_S
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                try:
                    return await self.bridge.link()
                except BridgeRefused as refused:
                    if refused.http_status is not None or not await self._runs():
                        raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_S)

    async def close(self) -> None:
        if self._end is not None:
            self._end.cancel()
            await asyncio.gather(self._end, return_exceptions=True)
        await self.bridge.close()
        if self._multiplexer is not None:
            await self._multiplexer.close()

    async def _wait(self, ended: Callable[[], None]) -> None:
        with contextlib.suppress(errors.PaddockError):
            await self._engine.ended(self._container)
        asyncio.get_running_loop().call_soon(ended)  # when this task is over, so that it is not found running

    async def _runs(self) -> bool:
        found = await self._engine.inspect(self._container)
        return found is not None and bool(found["State"]["Running"])

    async def _endpoint(self) -> BridgeEndpoint:
        return BridgeEndpoint("ws://agent", {TOKEN_HEADER: self._token}, self._connect)

    async def _connect(self) -> socket.socket:
        async with self._opening:
            if self._multiplexer is None or not self._multiplexer.alive:
                if self._multiplexer is not None:
                    await self._multiplexer.close()
                self._multiplexer = await self._open_multiplexer()
        return await self._multiplexer.connect()

    async def _open_multiplexer(self) -> Multiplexer:
        try:
            pipe = await EngineExec.open(self._engine, self._container, FAR_COMMAND)
        except (EngineNotFound, errors.Conflict) as error:
            raise errors.ProviderUnavailable(f"The container does not run: {error.message}") from error
        multiplexer = Multiplexer(pipe)
        try:
            await multiplexer.start()
        except errors.ProviderUnavailable as error:
            said = pipe.stderr.decode(errors="replace").strip()
            raise errors.ProviderUnavailable(f"{error.message} {said}".strip()) from error
        return multiplexer
