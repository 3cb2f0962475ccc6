"""Ports of a remote sandbox as local sockets: one end of a socket pair each, or a listener in a private directory."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from websockets.asyncio.client import ClientConnection

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.bridge import AgentBridge
from paddock.machine.agent.connection import AgentConnection
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.ports import ListenerKind

_WAITING_CHANNELS = 2
"""Channels that wait for the next connection inside, so that one can arrive while another is being handled."""
_BACKLOG = 128
_MIN_RETRY_S, _MAX_RETRY_S = 0.5, 30.0


class RemotePorts:
    """Implements :class:`~paddock.machine.agent.ports.AgentPorts` over a bridge."""

    def __init__(self, line: AgentConnection, bridge: AgentBridge) -> None:
        self._connection = line
        self._bridge = bridge
        self._doors: dict[tuple[int, ListenerKind], _RemoteListener] = {}

    async def dial(self, port: int) -> socket.socket:
        _check(port)
        await self._connection.link()  # raises if the machine cannot be reached, or its agent does not run
        try:
            return await self._bridge.dial(port)
        except AgentRefusal as refusal:
            raise failures.of_port(refusal, port) from None

    async def listen(self, port: int, kind: ListenerKind = ListenerKind.STREAM) -> socket.socket:
        """A local listener that stands for the one inside; the same one for the lifetime of this object."""
        _check(port)
        if kind.datagrams:
            raise errors.Unsupported("Datagrams cannot be received from a sandbox at another provider.")
        door = self._doors.get((port, kind))
        if door is None:
            await self._connection.link()
            door = _RemoteListener(self._bridge, port, kind)
            try:
                await door.open()
            except AgentRefusal as refusal:
                await door.close()
                raise failures.of_port(refusal, port) from None
            except BaseException:
                await asyncio.shield(door.close())
                raise
            self._doors[port, kind] = door
        return door.listener.dup()

    async def close(self) -> None:
        doors, self._doors = list(self._doors.values()), {}
        for door in doors:
            await door.close()


class _RemoteListener:
    """Forwards connections made inside to a local listener; keeps a few channels waiting for them."""

    def __init__(self, bridge: AgentBridge, port: int, kind: ListenerKind) -> None:
        self._bridge = bridge
        self._port, self._kind = port, kind
        self._folder = Path(tempfile.mkdtemp(prefix="paddock-port-"))  # mode 0700: no other user can connect
        self._path = str(self._folder / "door")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        self.listener.bind(self._path)
        self.listener.listen(_BACKLOG)
        self._waiting: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Raises the error of the first channel if it is refused; the agent reports at once whether it can listen."""
        listens = asyncio.Event()
        first = asyncio.create_task(self._bridge.accept(self._port, self._kind, listens.set))
        said = asyncio.create_task(listens.wait())
        try:  # an older agent reports only failures
            await asyncio.wait([first, said], timeout=_MIN_RETRY_S, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            first.cancel()
            raise
        finally:
            said.cancel()
        if first.done():
            first.result()
        self._waiting = [
            asyncio.create_task(self._keep(first if not number else None)) for number in range(_WAITING_CHANNELS)
        ]

    async def close(self) -> None:
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self.listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _keep(self, begun: asyncio.Task[ClientConnection] | None) -> None:
        pause = _MIN_RETRY_S
        while True:
            try:
                channel = await (begun or self._bridge.accept(self._port, self._kind))
                await self._bring(channel)
                pause = _MIN_RETRY_S
            # the machine is paused, or the connection is lost: it may come back
            except (errors.PaddockError, AgentRefusal):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RETRY_S)
            finally:
                if begun is not None:
                    begun.cancel()
                begun = None

    async def _bring(self, channel: ClientConnection) -> None:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, self._path)
        except OSError:  # the listener was closed
            end.close()
            with suppress(OSError):
                await channel.close()
            return
        self._bridge.serve(channel, end)


def _check(port: int) -> None:
    if not 0 < port < 1 << 16:
        raise errors.Invalid(f"{port} is not the number of a port.")
