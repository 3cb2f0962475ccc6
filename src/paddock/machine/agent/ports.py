"""Ports of a sandbox as sockets from inside its network namespace. Sockets are validated before use, and never
block."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from enum import IntEnum

from paddock import errors
from paddock.loop_turns import begin_turn, give_turn
from paddock.machine.agent import failures
from paddock.machine.agent.connection import AgentConnection
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.pending import DescriptorCall
from paddock.machine.agent.wire import ProtocolError, Reader, ReplyKind, RequestKind, Writer

_NO_WAIT = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class ListenerKind(IntEnum):
    """Address and type of a listener: bit 0 selects ``::1`` instead of ``127.0.0.1``, bit 1 selects UDP."""

    STREAM = 0
    STREAM6 = 1
    DATAGRAM = 2
    DATAGRAM6 = 3

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if self & 1 else socket.AF_INET

    @property
    def datagrams(self) -> bool:
        return bool(self & 2)


class AgentPorts:
    def __init__(self, line: AgentConnection) -> None:
        self._connection = line

    async def dial(self, port: int) -> socket.socket:
        return await self._ask(RequestKind.DIAL, Writer().u16(port), port, None)

    async def listen(self, port: int, kind: ListenerKind = ListenerKind.STREAM) -> socket.socket:
        if kind is ListenerKind.STREAM:
            return await self._ask(RequestKind.LISTEN, Writer().u16(port), port, kind)
        return await self._ask(RequestKind.LISTEN_ON, Writer().u16(port).u8(kind), port, kind)

    async def close(self) -> None:
        """Nothing to close: sockets belong to their users."""

    async def _ask(self, request: RequestKind, payload: Writer, port: int, kind: ListenerKind | None) -> socket.socket:
        if not 0 < port < 1 << 16:
            raise errors.Invalid(f"{port} is not the number of a port.")

        def decode(body: Reader, descriptor: int) -> None:
            _check(descriptor, kind)

        try:
            handed = await self._connection.call(
                request, payload, lambda: DescriptorCall(ReplyKind.SOCKET, decode), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_port(refusal, port) from None
        given = socket.socket(fileno=handed.descriptor)
        if kind is None and not _connected(given):
            given.close()
            raise failures.of_port(AgentRefusal(errno.ECONNREFUSED, "closed again"), port)
        return given


class SocketConnection:
    """A byte stream over a socket that the agent may still hold, too.

    The agent could make it blocking, since O_NONBLOCK belongs to the open file and not to the descriptor. Therefore
    every call passes MSG_DONTWAIT.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._turn_to_read = asyncio.Lock()
        self._turn_to_write = asyncio.Lock()
        self._closed = False

    async def read(self, limit: int = 65536) -> bytes:
        await give_turn()
        async with self._turn_to_read:
            while not self._closed:
                try:
                    return self._socket.recv(limit, _NO_WAIT)
                except (BlockingIOError, InterruptedError):
                    await self._readable()
                except OSError:
                    return b""
        return b""

    async def write(self, data: bytes) -> None:
        await give_turn()
        async with self._turn_to_write:
            rest = memoryview(data)
            while rest:
                if self._closed:
                    raise errors.Conflict("The connection to the sandbox was closed.")
                try:
                    rest = rest[self._socket.send(rest, _NO_WAIT) :]
                except (BlockingIOError, InterruptedError):
                    await self._writable()
                except OSError as error:
                    raise errors.Conflict("The other end inside the sandbox has closed the connection.") from error

    async def end_write(self) -> None:
        async with self._turn_to_write:
            if not self._closed:
                try:
                    self._socket.shutdown(socket.SHUT_WR)
                except OSError:  # the other end closed first
                    return

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for waiting in (self._reading, self._writing):
            _wake(waiting)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    async def _readable(self) -> None:
        self._reading = self._loop.create_future()
        self._loop.add_reader(self._socket, _wake, self._reading)
        try:
            await self._reading
        finally:
            self._reading = None
            begin_turn()
            if not self._closed:
                self._loop.remove_reader(self._socket)

    async def _writable(self) -> None:
        self._writing = self._loop.create_future()
        self._loop.add_writer(self._socket, _wake, self._writing)
        try:
            await self._writing
        finally:
            self._writing = None
            begin_turn()
            if not self._closed:
                self._loop.remove_writer(self._socket)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _check(descriptor: int, kind: ListenerKind | None) -> None:
    """Check that the socket is of the requested kind: connected, or listening as ``kind`` says."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise ProtocolError("The sandbox's agent sent a descriptor that is not the requested socket.")
    try:
        found = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ProtocolError("The sandbox's agent gave a socket of an unknown kind.") from error
    try:
        if not _is(found, kind):
            raise ProtocolError("The sandbox's agent gave a socket of another kind than asked for.")
        found.setblocking(False)
    except OSError as error:
        raise ProtocolError("The sandbox's agent gave a socket that cannot be used.") from error
    finally:
        found.detach()


def _connected(given: socket.socket) -> bool:
    """False if the listener ended in the meantime, so that there is no peer any more."""
    try:
        given.getpeername()
    except OSError:
        return False
    return True


def _is(found: socket.socket, kind: ListenerKind | None) -> bool:
    families = (socket.AF_INET, socket.AF_INET6) if kind is None else (kind.family,)
    datagrams = kind is not None and kind.datagrams
    expected = (socket.SOCK_DGRAM, socket.IPPROTO_UDP) if datagrams else (socket.SOCK_STREAM, socket.IPPROTO_TCP)
    accepts = bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    listens = kind is not None and not kind.datagrams
    return found.family in families and (found.type, found.proto) == expected and accepts is listens
