"""A proxy between the browser and Paddock that takes away what browsers say about a request, as an old one might.

What is left then is what the answers themselves say. It can also play an earlier server on the same address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TAKEN = re.compile(rb"\r\n(?:sec-fetch-[a-z]+|upgrade-insecure-requests|connection)[ \t]*:[^\r\n]*", re.IGNORECASE)


class OldProxy:
    def __init__(self, to: int) -> None:
        self.port = 0
        self.earlier: dict[bytes, bytes] = {}
        """Whole answers by their path, given instead of Paddock's."""
        self._to = to

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].partition(b"?")[0]
            if path in self.earlier:
                writer.write(self.earlier[path])
            else:
                await self._pass_on(head, reader, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._to)
        line, _, rest = _TAKEN.sub(b"", head).partition(b"\r\n")
        requests.write(line + b"\r\nConnection: close\r\n" + rest)
        body = asyncio.create_task(_pump(reader, requests))
        try:
            await _pump(answers, writer)
        finally:
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
            requests.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def old_proxy(to: int) -> AsyncIterator[OldProxy]:
    proxy = OldProxy(to)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
