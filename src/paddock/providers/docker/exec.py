"""One program that the engine runs in a container, with its input and output over one connection to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

from paddock import errors
from paddock.loop_turns import give_turn
from paddock.providers.docker.engine import DockerEngine

_SECONDS = 30.0
_LARGEST_HEAD = 16 * 1024
_PIECE = 64 * 1024
_FRAME = struct.Struct(">B3xI")
_STDOUT, _STDERR = 1, 2
_KEPT = 500
_IDLE, _INTERVAL, _TIMES = 30, 10, 6
"""After a minute and a half without a word from its machine, an engine elsewhere counts as gone."""


class EngineExec:
    """A :class:`~paddock.machine.agent.multiplexer.BytePipe`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left = 0
        """Bytes of output that are still to come of the engine's current frame."""
        self.stderr = b""
        """The end of what it wrote to its standard error."""

    @classmethod
    async def open(cls, engine: DockerEngine, container: str, words: Sequence[str]) -> Self:
        """As root, who the container's root is; it ends when this is closed."""
        number = await engine.exec(container, words)
        try:
            async with asyncio.timeout(_SECONDS):
                reader, writer = await _connected(engine)
                try:
                    await _begin(engine, number, reader, writer)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError as error:
            raise errors.ProviderTimeout(f"The engine at {engine.address} did not answer in time.") from error
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise errors.ProviderUnavailable(f"The engine at {engine.address} does not answer ({error}).") from error
        return cls(reader, writer)

    async def read(self) -> bytes:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while not self._left:
                await give_turn()
                kind, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                if kind == _STDOUT:
                    self._left = length
                elif kind == _STDERR:
                    await self._read_stderr(length)
                else:
                    return b""
            data = await self._reader.read(min(self._left, _PIECE))
            self._left -= len(data)
            return data
        return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.transport.abort()

    async def _read_stderr(self, length: int) -> None:
        while length:
            piece = await self._reader.readexactly(min(length, _PIECE))
            self.stderr = (self.stderr + piece)[-_KEPT:]
            length -= len(piece)


async def _connected(engine: DockerEngine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = engine.address
    if address.socket is not None:
        return await asyncio.open_unix_connection(address.socket, limit=_PIECE)
    parts = urlsplit(address.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=engine.tls, limit=_PIECE)
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE),
        (socket.TCP_KEEPINTVL, _INTERVAL),
        (socket.TCP_KEEPCNT, _TIMES),
        (socket.TCP_USER_TIMEOUT, (_IDLE + _INTERVAL * _TIMES) * 1000),
    ):
        raw.setsockopt(socket.IPPROTO_TCP, option, value)
    return reader, writer


async def _begin(engine: DockerEngine, number: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """From here on the connection is the program's."""
    body = json.dumps({"Detach": False, "Tty": False}).encode()
    writer.write(
        f"POST {engine.path(f'/exec/{number}/start')} HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    head = (await reader.readuntil(b"\r\n\r\n"))[:_LARGEST_HEAD].split(b"\r\n")
    words = head[0].split()
    if len(words) < 2 or words[1] not in {b"101", b"200"}:
        said = await reader.read(_KEPT)
        raise errors.ProviderUnavailable(
            f"The engine did not let us into the container: {head[0].decode(errors='replace')[:80]} "
            f"{said.decode(errors='replace').strip()}"
        )
