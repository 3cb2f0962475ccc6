"""The road to a vendor, with what happens on roads: answers of somebody on the way, and cuts at the worst moment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Trouble:
    """What befalls requests whose first line matches, so many times. Without a status: the connection is cut, after the
    other side has done what it was asked."""

    matches: str
    times: int = 1_000_000
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def answer(self) -> bytes:
        body = b'{"code": %d, "message": "trouble on the road"}' % (self.status or 0)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {self.status} Trouble", *(f"{k}: {v}" for k, v in (headers | self.headers).items()), "", ""]
        return "\r\n".join(lines).encode() + body


class Road:
    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.url = ""
        self.troubles: list[Trouble] = []
        self.seen: list[str] = []
        self.closed = False
        """Nobody gets through."""
        self._travellers: set[asyncio.StreamWriter] = set()
        self._journeys: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Everybody who is on the way now is lost."""
        for writer in list(self._travellers):
            writer.transport.abort()

    def depart(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        journey = asyncio.create_task(self._travel(reader, writer))
        self._journeys.add(journey)
        journey.add_done_callback(self._journeys.discard)

    async def close(self) -> None:
        self.cut()
        for journey in list(self._journeys):
            journey.cancel()
        await asyncio.gather(*self._journeys, return_exceptions=True)

    async def _travel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._travellers.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._pass(reader, writer)
        finally:
            self._travellers.discard(writer)
            writer.transport.abort() if self.closed else writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            return
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0].decode()
        self.seen.append(line)
        trouble = next((one for one in self.troubles if one.times > 0 and re.search(one.matches, line)), None)
        if trouble is not None:
            trouble.times -= 1
            if trouble.status is not None:
                writer.write(trouble.answer())
                await writer.drain()
                return
        if b"\r\nupgrade:" not in head.lower():  # one request each, so that every one is looked at
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head[:-4]) + b"\r\nConnection: close\r\n\r\n"
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._travellers.add(far_writer)
        try:
            far_writer.write(head)
            onward = asyncio.create_task(_pump(reader, far_writer))
            if trouble is None:
                await _pump(far_reader, writer)
            else:
                await far_reader.read(1)  # it has been done, and nobody hears of it
            onward.cancel()
            await asyncio.gather(onward, return_exceptions=True)
        finally:
            self._travellers.discard(far_writer)
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def a_road_to(target: str) -> AsyncIterator[Road]:
    road = Road(target)
    server = await asyncio.start_server(road.depart, "127.0.0.1", 0)
    road.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield road
    finally:
        server.close()
        await road.close()
