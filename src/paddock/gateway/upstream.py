"""A connection to a port inside a sandbox, as a stream socket.

Providers on this host hand over a real socket, and bytes then go from kernel to kernel. Others give a stream of bytes;
a pair of sockets stands between, so that the rest of the gateway need not know.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from paddock import errors
from paddock.egress.dial import dial as dial_first
from paddock.http1.stream_socket import CHUNK, StreamSocket, probe_peer
from paddock.machine.base import Connection, Machine

_DIAL_SECONDS = 15.0
_SERVER_DIAL_S = 3.0


@runtime_checkable
class SocketDialer(Protocol):
    """A machine that can hand over a connected socket."""

    async def dial_socket(self, port: int) -> socket.socket: ...


class Upstream:
    def __init__(self, stream: StreamSocket, bridge: StreamBridge | None = None) -> None:
        self.stream = stream
        self._bridge = bridge

    @property
    def keepable(self) -> bool:
        """Whether its end is seen at once, so that it may be kept for another request."""
        return self._bridge is None

    @property
    def quiet(self) -> bool:
        """Whether the server has neither closed it nor sent anything unasked."""
        return self.stream.is_quiet()

    async def close(self) -> None:
        self.stream.close()
        if self._bridge is not None:
            await self._bridge.close()


class StreamBridge:
    """Moves bytes between a stream and one end of a pair of sockets."""

    def __init__(self, connection: Connection, end: socket.socket) -> None:
        self._connection = connection
        self._stream = StreamSocket(end)
        self._tasks = [asyncio.create_task(self._inward()), asyncio.create_task(self._outward())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stream.close()
        await self._connection.close()

    async def _inward(self) -> None:
        with suppress(OSError, errors.PaddockError):
            while await self._stream.fill(CHUNK):
                data = bytes(self._stream.ahead)
                self._stream.ahead.clear()
                await self._connection.write(data)
            await self._connection.end_write()

    async def _outward(self) -> None:
        with suppress(OSError, errors.PaddockError):
            while data := await self._connection.read(CHUNK):
                await self._stream.send(data)
        self._stream.end()


async def dial(machine: Machine, port: int) -> Upstream:
    """Raises Conflict where nothing listens, Unavailable where that cannot be known."""
    try:
        async with asyncio.timeout(_DIAL_SECONDS):
            if isinstance(machine, SocketDialer):
                return Upstream(_without_delay(StreamSocket(await machine.dial_socket(port))))
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
        probe_peer(sock)
        if not tls:
            return Upstream(_without_delay(StreamSocket(sock)))
        try:
            context = await asyncio.to_thread(_tls)
            reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host)
        except BaseException:
            sock.close()
            raise
    ours, theirs = socket.socketpair()
    return Upstream(StreamSocket(ours), StreamBridge(TlsConnection(reader, writer), theirs))


async def _connected(host: str, port: int) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    try:
        return (await dial_first([ip_address(address[0]) for *_, address in found], port, _SERVER_DIAL_S))[1]
    except errors.Unavailable as error:
        raise OSError(error.message) from error


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
        """Half-closed TLS connections are not supported widely."""

    async def close(self) -> None:
        self._writer.close()


def _without_delay(stream: StreamSocket) -> StreamSocket:
    if stream.sock.family != socket.AF_UNIX:  # of a remote sandbox: the socket of its transport
        stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream
