"""Streams the body of an HTTP message from one connection to another without buffering it."""

from __future__ import annotations

import re
from collections.abc import Callable

from paddock import errors
from paddock.http1.head import Body, Framing
from paddock.http1.stream_socket import CHUNK, StreamSocket

Moved = Callable[[int], None]

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_LINE_BYTES = 4096
_MAX_TRAILERS = 64


async def move_body(source: StreamSocket, sink: StreamSocket, body: Body, moved: Moved, *, chunks: bool = True) -> None:
    """``chunks``: whether a chunked body keeps its framing, which an HTTP/1.0 client would take for content."""
    if body.framing is Framing.LENGTH:
        await _exactly(source, sink, body.length, moved)
    elif body.framing is Framing.CHUNKED:
        await _chunked(source, sink, moved, chunks)
    elif body.framing is Framing.UNTIL_END:
        while count := await source.move(sink):
            moved(count)


async def _exactly(source: StreamSocket, sink: StreamSocket, left: int, moved: Moved) -> None:
    while left:
        count = await source.move(sink, min(left, CHUNK))
        if not count:
            raise errors.MalformedRequest("The connection ended within a body.")
        moved(count)
        left -= count


async def _chunked(source: StreamSocket, sink: StreamSocket, moved: Moved, chunks: bool) -> None:
    """The chunk framing is rewritten, so that the next reader sees exactly the sizes that were parsed here."""
    while True:
        match = _SIZE.fullmatch(await source.line(_MAX_LINE_BYTES))
        if match is None:
            raise errors.MalformedRequest("The size of a chunk is malformed.")
        size = int(match[1], 16)
        if chunks and size:
            await _write(sink, b"%x\r\n" % size, moved)
        if not size:
            break
        await _exactly(source, sink, size, moved)
        if await source.line(_MAX_LINE_BYTES):
            raise errors.MalformedRequest("A chunk is longer than it says.")
        if chunks:
            await _write(sink, b"\r\n", moved)
    # Any intermediary may drop trailers (RFC 9110, 6.5.1).
    for _ in range(_MAX_TRAILERS):
        if not await source.line(_MAX_LINE_BYTES):
            break
    else:
        raise errors.MalformedRequest("There are too many trailers.")
    if chunks:
        await _write(sink, b"0\r\n\r\n", moved)


async def _write(sink: StreamSocket, data: bytes, moved: Moved) -> None:
    await sink.send(data)
    moved(len(data))
