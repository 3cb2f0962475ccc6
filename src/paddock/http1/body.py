"""Bodies of HTTP messages: where they end, and how they move between two connections without being collected."""

from __future__ import annotations

import re
from enum import Enum
from typing import Protocol

from paddock import errors
from paddock.http1.head import Body, Framing
from paddock.http1.limits import FRAMING_LINES_PER_TURN, MAX_FRAMING_LINE_BYTES, MAX_TRAILERS
from paddock.http1.stream_socket import CHUNK, Moved, StreamSocket, Transform

_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_WINDOW_BYTES = 64
"""Searched for the end of a line. Most are a few bytes long, and a body may have very many."""
_REFRAMED_BYTES = 256 << 10
"""Of a chunked body that become one chunk."""


class _Expect(Enum):
    SIZE = "the size of a chunk"
    DATA = "the bytes of a chunk"
    END = "the end of a chunk"
    TRAILER = "a trailer, or the empty line that ends them"


class BodyEnd(Protocol):
    """Finds the end of a body in what is read."""

    @property
    def done(self) -> bool: ...

    @property
    def room(self) -> int:
        """Bytes to read at most: more are not of this body."""

    def feed(self, data: memoryview) -> int:
        """How many of these bytes belong to the body: all of them, unless it ends among them, or so much of it is
        framing that the rest is for a later turn."""


class ContentLengthEnd:
    def __init__(self, length: int) -> None:
        self.left = length

    @property
    def done(self) -> bool:
        return not self.left

    @property
    def room(self) -> int:
        return min(self.left, CHUNK)

    def feed(self, data: memoryview) -> int:
        count = min(self.left, len(data))
        self.left -= count
        return count


class ConnectionCloseEnd:
    done = False
    room = CHUNK

    def feed(self, data: memoryview) -> int:
        return len(data)


class ChunkedEnd:
    """Keeps nothing but the line that is being read."""

    room = CHUNK

    def __init__(self) -> None:
        self.done = False
        self._expect = _Expect.SIZE
        self._left = 0
        self._line = bytearray()
        self._trailers = 0

    def feed(self, data: memoryview, content: list[memoryview] | None = None) -> int:
        """``content`` is given the bytes of the chunks, without their framing."""
        at = lines = 0
        while at < len(data) and not self.done and lines < FRAMING_LINES_PER_TURN:
            if self._expect is _Expect.DATA:
                step = min(self._left, len(data) - at)
                if content is not None:
                    content.append(data[at : at + step])
                at += step
                self._left -= step
                if not self._left:
                    self._expect = _Expect.END
            else:
                at = self._read_line(data, at)
                lines += 1
        return at

    def _read_line(self, data: memoryview, at: int) -> int:
        """As much of a line as there is; the position after it."""
        window = bytes(data[at : at + _WINDOW_BYTES])
        end = window.find(b"\n")
        self._line += window if end < 0 else window[: end + 1]
        if len(self._line) > MAX_FRAMING_LINE_BYTES:
            raise errors.MalformedRequest("A line of the body's framing is too long.")
        if end < 0:
            return at + len(window)
        if not self._line.endswith(b"\r\n"):
            raise errors.MalformedRequest("A line of the body's framing does not end in CRLF.")
        line = bytes(self._line[:-2])
        self._line.clear()
        self._parse(line)
        return at + end + 1

    def _parse(self, line: bytes) -> None:
        match self._expect:
            case _Expect.SIZE:
                found = _SIZE.fullmatch(line)
                if found is None:
                    raise errors.MalformedRequest("The size of a chunk is malformed.")
                self._left = int(found[1], 16)
                self._expect = _Expect.DATA if self._left else _Expect.TRAILER
            case _Expect.END:
                if line:
                    raise errors.MalformedRequest("A chunk is longer than it says.")
                self._expect = _Expect.SIZE
            case _:
                self._trailers += 1
                self.done = not line
                if self._trailers > MAX_TRAILERS:
                    raise errors.MalformedRequest("There are too many trailers.")


def end_of(body: Body) -> BodyEnd:
    match body.framing:
        case Framing.CHUNKED:
            return ChunkedEnd()
        case Framing.UNTIL_END:
            return ConnectionCloseEnd()
        case _:
            return ContentLengthEnd(body.length)


def app_body_end(head: bytes) -> ContentLengthEnd | ChunkedEnd:
    """Of a request for the app, whose own parser checks its head."""
    if _CHUNKED.search(head):
        return ChunkedEnd()
    length = _LENGTH.search(head)
    return ContentLengthEnd(0 if length is None else int(length[1]))


async def pass_body(source: StreamSocket, sink: StreamSocket, end: BodyEnd, moved: Moved) -> None:
    """The body as it comes: a small piece stays a small piece, and is there at once."""

    def taken(data: memoryview) -> tuple[int, memoryview]:
        count = end.feed(data)
        return count, data[:count]

    await _move_until(end, source, sink, taken, moved)


async def reframe_body(source: StreamSocket, sink: StreamSocket, body: Body, moved: Moved, *, chunks: bool) -> None:
    """The chunk framing is written anew, so that the next reader sees exactly the sizes that were parsed here.

    ``chunks``: whether there is any, which an HTTP/1.0 client would take for content.
    """
    if body.framing is not Framing.CHUNKED:
        await pass_body(source, sink, end_of(body), moved)
        return
    end = ChunkedEnd()

    def taken(data: memoryview) -> tuple[int, bytes]:
        content: list[memoryview] = []
        count = end.feed(data, content)
        size = sum(map(len, content))
        if not chunks:
            return count, b"".join(content)
        # Any intermediary may drop trailers (RFC 9110, 6.5.1).
        last = b"0\r\n\r\n" if end.done else b""
        return count, b"".join((b"%x\r\n" % size, *content, b"\r\n", last)) if size else last

    await _move_until(end, source, sink, taken, moved, _REFRAMED_BYTES)


async def _move_until(
    end: BodyEnd, source: StreamSocket, sink: StreamSocket, transform: Transform, moved: Moved, most: int = CHUNK
) -> None:
    while not end.done:
        count = await source.move(sink, min(most, end.room), transform)
        moved(count)
        if not count and isinstance(end, ConnectionCloseEnd):
            return
        if not count:
            raise errors.MalformedRequest("The connection ended within a body.")
