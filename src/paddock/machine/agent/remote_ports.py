"""Ports of a sandbox behind a network as sockets here: one of a pair each, or a listener in a private folder."""

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

_WAITING = 2
"""Who waits for the next connection inside, so that one can come while another is taken."""
_BACKLOG = 128
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class RemotePorts:
    """What :class:`~paddock.machine.agent.ports.Ports` does, over a bridge."""

    def __init__(self, line: AgentConnection, bridge: AgentBridge) -> None:
        self._connection = line
        self._bridge = bridge
        self._doors: dict[tuple[int, ListenerKind], _RemoteListener] = {}

    async def dial(self, port: int) -> socket.socket:
        _check(port)
        await self._connection.link()  # whether the machine can be reached at all, and its agent runs
        try:
            return await self._bridge.dial(port)
        except AgentRefusal as refusal:
            raise failures.of_port(refusal, port) from None

    async def listen(self, port: int, kind: ListenerKind = ListenerKind.STREAM) -> socket.socket:
        """A listener that stands for the one inside; the same one as long as this machine is held."""
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
    """Brings connections that are made inside to a listener here, one waiting channel each."""

    def __init__(self, bridge: AgentBridge, port: int, kind: ListenerKind) -> None:
        self._bridge = bridge
        self._port, self._kind = port, kind
        self._folder = Path(tempfile.mkdtemp(prefix="paddock-port-"))  # nobody else may enter it
        self._path = str(self._folder / "door")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        self.listener.bind(self._path)
        self.listener.listen(_BACKLOG)
        self._waiting: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Raises what the first channel is refused with; the agent says at once whether it can listen."""
        listens = asyncio.Event()
        first = asyncio.create_task(self._bridge.accept(self._port, self._kind, listens.set))
        said = asyncio.create_task(listens.wait())
        try:  # an older agent only speaks up when it cannot
            await asyncio.wait([first, said], timeout=_FIRST_PAUSE, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            first.cancel()
            raise
        finally:
            said.cancel()
        if first.done():
            first.result()
        self._waiting = [asyncio.create_task(self._keep(first if not number else None)) for number in range(_WAITING)]

    async def close(self) -> None:
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        self.listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _keep(self, begun: asyncio.Task[ClientConnection] | None) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                channel = await (begun or self._bridge.accept(self._port, self._kind))
                await self._bring(channel)
                pause = _FIRST_PAUSE
            except (errors.PaddockError, AgentRefusal):  # the machine sleeps, or the way to it is cut: it may come back
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                if begun is not None:
                    begun.cancel()
                begun = None

    async def _bring(self, channel: ClientConnection) -> None:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, self._path)
        except OSError:  # nobody takes connections any more
            end.close()
            with suppress(OSError):
                await channel.close()
            return
        self._bridge.serve(channel, end)


def _check(port: int) -> None:
    if not 0 < port < 1 << 16:
        raise errors.Invalid(f"{port} is not the number of a port.")
