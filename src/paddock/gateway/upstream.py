"""A connection to a port inside a sandbox, as a wire.

Providers on this host hand over a real socket, and bytes then go from kernel to kernel. Others give a stream of bytes;
a pair of sockets stands between, so that the rest of the gateway need not know.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import cache
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from paddock import errors
from paddock.gateway.client_socket import notice_silent_end
from paddock.http1.stream_socket import CHUNK, StreamSocket
from paddock.machine.base import Connection, Machine

_DIAL_SECONDS = 15.0
_SERVER_DIAL_S = 3.0


@runtime_checkable
class SocketDialer(Protocol):
    """A machine that can hand over a connected socket."""

    async def dial_socket(self, port: int) -> socket.socket: ...


class Upstream:
    def __init__(self, wire: StreamSocket, bridge: StreamBridge | None = None) -> None:
        self.wire = wire
        self._bridge = bridge

    @property
    def keepable(self) -> bool:
        """Whether its end is seen at once, so that it may be kept for another request."""
        return self._bridge is None

    @property
    def quiet(self) -> bool:
        """Whether the server has neither ended it nor said anything that nobody asked for."""
        return self.wire.is_quiet()

    async def close(self) -> None:
        self.wire.close()
        if self._bridge is not None:
            await self._bridge.close()


class StreamBridge:
    """Moves bytes between a stream and one end of a pair of sockets."""

    def __init__(self, connection: Connection, end: socket.socket) -> None:
        self._connection = connection
        self._wire = StreamSocket(end)
        self._tasks = [asyncio.create_task(self._inward()), asyncio.create_task(self._outward())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._wire.close()
        await self._connection.close()

    async def _inward(self) -> None:
        with suppress(OSError, errors.PaddockError):
            while await self._wire.fill(CHUNK):
                data = bytes(self._wire.ahead)
                self._wire.ahead.clear()
                await self._connection.write(data)
            await self._connection.end_write()

    async def _outward(self) -> None:
        with suppress(OSError, errors.PaddockError):
            while data := await self._connection.read(CHUNK):
                await self._wire.send(data)
        self._wire.end()


async def dial(machine: Machine, port: int) -> Upstream:
    """Raises Conflict where nothing listens, Unavailable where that cannot be known."""
    try:
        async with asyncio.timeout(_DIAL_SECONDS):
            if isinstance(machine, SocketDialer):
                return Upstream(_prompt(StreamSocket(await machine.dial_socket(port))))
            connection = await machine.dial(port)
    except TimeoutError:
        raise errors.ProviderTimeout(f"Port {port} of the sandbox could not be reached in time.") from None
    ours, theirs = socket.socketpair()
    return Upstream(StreamSocket(ours), StreamBridge(connection, theirs))


async def dial_server(url: str) -> Upstream:
    """A connection to another server. Raises OSError (a certificate that is not good is one, too)."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    async with asyncio.timeout(_SERVER_DIAL_S):
        sock = await _connected(host, port)
        notice_silent_end(sock)
        if not tls:
            return Upstream(_prompt(StreamSocket(sock)))
        try:
            context = await asyncio.to_thread(_tls)
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host)
        except BaseException:
            sock.close()
            raise
    ours, theirs = socket.socketpair()
    return Upstream(StreamSocket(ours), StreamBridge(TlsConnection(reader, writer), theirs))


async def _connected(host: str, port: int) -> socket.socket:
    loop, trouble = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as refused:
            sock.close()
            trouble = refused
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise trouble


@cache
def _tls() -> ssl.SSLContext:
    """With the authorities that the machine trusts, or those in ``SSL_CERT_FILE``."""
    return ssl.create_default_context()


class TlsConnection(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, limit: int = CHUNK) -> bytes:
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end_write(self) -> None:
        """TLS has no half-closed connections that everybody understands."""

    async def close(self) -> None:
        self._writer.close()


def _prompt(wire: StreamSocket) -> StreamSocket:
    if wire.sock.family != socket.AF_UNIX:  # which a way to a sandbox that is far away begins with
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire
