"""A minimal HTTP client: keep-alive, one request at a time, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> bytes:
        """The response body; any status but 2xx is an error."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), None)
        body = await self._chunks() if length is None else await self._reader.readexactly(length)
        if not 200 <= status < 300:
            raise RuntimeError(f"{status}: {body[:300]!r} for {request[:120]!r}")
        return body

    async def _chunks(self) -> bytes:
        """The whole body of a chunked response."""
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readline()
        await self._reader.readline()
        return b"".join(parts)

    async def timed(self, request: bytes) -> float:
        started = time.perf_counter()
        await self.ask(request)
        return time.perf_counter() - started

    def close(self) -> None:
        self._writer.close()


def request(method: str, path: str, key: str = "", body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    if key:
        lines.append(f"X-API-Key: {key}")
    if body is not None:
        lines.append("Content-Type: application/json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


async def throughput(port: int, message: bytes, seconds: float, connections: int) -> float:
    """Requests per second over this many connections, each of which sends the next request after the response."""
    end = time.perf_counter() + seconds
    count = 0

    async def loop() -> None:
        nonlocal count
        wire = await Wire.open(port)
        while time.perf_counter() < end:
            await wire.ask(message)
            count += 1
        wire.close()

    started = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(connections)))
    return count / (time.perf_counter() - started)
