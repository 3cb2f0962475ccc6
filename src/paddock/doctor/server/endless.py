"""Attacks with endless small pieces: from a server in a sandbox, an unauthenticated client, or a member."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

import httpx

from paddock.doctor.server import pages
from paddock.doctor.server.target import REQUEST_TIMEOUT_S, RESPONSIVE_S, Target, stalled

_FLOOD_S = 1.5
_STRANGERS = 4
_PIECES = 20_000
_READ = 1 << 20
_UPGRADE = f"""Connection: Upgrade\r
Upgrade: websocket\r
Sec-WebSocket-Version: 13\r
Sec-WebSocket-Key: {"A" * 22}==\r
"""
_PING, _EMPTY = b"\x89\x80\0\0\0\0", b"\x82\x80\0\0\0\0"


async def heads(target: Target) -> str | None:
    """A server in a sandbox that sends interim responses and never the final one."""
    async with pages.serving(target) as app:

        async def ask() -> str | None:
            with contextlib.suppress(httpx.TimeoutException):
                answer = await target.member.get(f"{app.path()}heads", timeout=RESPONSIVE_S)
                return None if answer.is_server_error or app.answered(answer) else _not_shown(answer)
            return "a server in a sandbox that never completes its response is waited for without limit"

        return await stalled(target, ask)


async def tiny_chunks(target: Target) -> str | None:
    """Bodies in one-byte chunks: of a response, and of unauthenticated requests."""
    async with pages.serving(target) as app:

        async def ask() -> str | None:
            answer = await target.member.get(f"{app.path()}chunks")
            return None if answer.is_success else _not_shown(answer)

        if problem := await stalled(target, ask):
            return f"{problem}, for an answer in chunks of one byte"
    begin = b"POST /sandboxes/create HTTP/1.1\r\nHost: doctor\r\nTransfer-Encoding: chunked\r\n\r\n"
    problem = await stalled(target, partial(_flooded, target, begin, b"1\r\na\r\n", _STRANGERS))
    return problem and f"{problem}, for requests in chunks of one byte"


async def pipelining(target: Target) -> str | None:
    """Pipelined unauthenticated requests, each of which is refused."""
    document = "GET /p/aaaaaaaaaaaaaaaaaaaa/3000/ HTTP/1.1\r\nHost: doctor\r\nSec-Fetch-Dest: document\r\n\r\n"
    for request in (document, "GET /sandboxes HTTP/1.1\r\nHost: doctor\r\n\r\n"):
        if problem := await stalled(target, partial(_flooded, target, b"", request.encode(), 1)):
            return problem
    return None


async def tiny_frames(target: Target) -> str | None:
    """Empty frames on the WebSocket of a member's terminal."""
    name = (await target.sandbox())["sandbox_id"]
    asked = f"GET /sandboxes/{name}/terminal?command=cat HTTP/1.1\r\nHost: doctor\r\nX-API-Key: {target.key}\r\n"
    begin = f"{asked}{_UPGRADE}\r\n".encode()
    for frame in (_PING, _EMPTY):
        if problem := await stalled(target, partial(_flooded, target, begin, frame, 1)):
            return problem
    return None


def _not_shown(answer: httpx.Response) -> str:
    return f"the application is not reached ({answer.status_code}), so nothing is known of what it sends"


async def _flooded(target: Target, begin: bytes, piece: bytes, connections: int) -> None:
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        await asyncio.gather(*(_flood(target, begin, piece) for _ in range(connections)))


async def _flood(target: Target, begin: bytes, piece: bytes) -> None:
    """Send as fast as it is read, until the connection is closed. Responses are read and discarded."""
    reader, writer = await asyncio.open_connection(*target.address)
    reading = asyncio.create_task(_read_away(reader))
    until = time.monotonic() + _FLOOD_S
    try:
        writer.write(begin)
        while (left := until - time.monotonic()) > 0:
            writer.write(piece * (_PIECES // len(piece)))
            async with asyncio.timeout(left):
                await writer.drain()
    except (OSError, TimeoutError):
        return
    finally:
        writer.transport.abort()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read_away(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(_READ):
            pass
