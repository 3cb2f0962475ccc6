"""Where a body ends, told from its bytes as they pass: feed an end what was read, and it says how much of it counts."""

from __future__ import annotations

import re
from enum import Enum
from typing import Protocol

from paddock import errors
from paddock.http1.head import Body, Framing

_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_IN_CHUNKS = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_LONGEST_LINE = 4096
_WINDOW = 64
"""Bytes that are looked at for the end of a line. Most are a few bytes long, and a body may have very many."""
_MOST_TRAILERS = 64
_LINES_AT_ONCE = 1_000
"""Lines of framing that one call reads: about a millisecond, however small the chunks are."""


class _Expect(Enum):
    SIZE = "the size of a chunk"
    DATA = "the bytes of a chunk"
    END = "the end of a chunk"
    TRAILER = "a trailer, or the empty line that ends them"


class BodyEnd(Protocol):
    @property
    def done(self) -> bool: ...

    def feed(self, data: memoryview) -> int:
        """How many of these bytes belong to the body: all of them, unless it ends among them, or so much of it is
        framing that the rest is for a later turn."""


def end_of(body: Body) -> BodyEnd:
    match body.framing:
        case Framing.CHUNKED:
            return ChunkedEnd()
        case Framing.UNTIL_END:
            return ConnectionCloseEnd()
        case _:
            return ContentLengthEnd(body.length)


def body_of(head: bytes) -> tuple[int, ChunkedEnd | None]:
    """Of a request for the app, whose parser is the judge of its head: the length of its body, or its chunks."""
    if _IN_CHUNKS.search(head):
        return 0, ChunkedEnd()
    length = _LENGTH.search(head)
    return (0 if length is None else int(length[1])), None


class ContentLengthEnd:
    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def done(self) -> bool:
        return not self._left

    def feed(self, data: memoryview) -> int:
        count = min(self._left, len(data))
        self._left -= count
        return count


class ConnectionCloseEnd:
    """The end of the stream itself."""

    done = False

    def feed(self, data: memoryview) -> int:
        return len(data)


class ChunkedEnd:
    """Nothing is kept but the line that is being read."""

    def __init__(self) -> None:
        self.done = False
        self._expect = _Expect.SIZE
        self._left = 0
        self._line = bytearray()
        self._trailers = 0

    def feed(self, data: memoryview) -> int:
        at = lines = 0
        while at < len(data) and not self.done and lines < _LINES_AT_ONCE:
            if self._expect is _Expect.DATA:
                step = min(self._left, len(data) - at)
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
        window = bytes(data[at : at + _WINDOW])
        end = window.find(b"\n")
        self._line += window if end < 0 else window[: end + 1]
        if len(self._line) > _LONGEST_LINE:
            raise errors.MalformedRequest("A line of the body's framing is too long.")
        if end < 0:
            return at + len(window)
        if not self._line.endswith(b"\r\n"):
            raise errors.MalformedRequest("A line of the body's framing does not end in CRLF.")
        line = bytes(self._line[:-2])
        self._line.clear()
        self._take(line)
        return at + end + 1

    def _take(self, line: bytes) -> None:
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
                if self._trailers > _MOST_TRAILERS:
                    raise errors.MalformedRequest("There are too many trailers.")
