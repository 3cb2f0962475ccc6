"""Streaming parser for ``multipart/form-data`` (RFC 7578): parts of any size take a few kilobytes of memory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from paddock.loop_turns import give_turn

_MAX_HEADERS = 16 * 1024
_MAX_BOUNDARY = 200
_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;.*?\bboundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))""", re.IGNORECASE | re.DOTALL
)
_PARAMETER = re.compile(rb""";\s*([A-Za-z0-9_-]+\*?)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""", re.DOTALL)
_ESCAPED = re.compile(rb"""\\(["\\])""")


class BadMultipart(Exception):
    """The body is not valid multipart/form-data."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    filename: str | None
    chunks: AsyncIterator[bytes]
    """Must be read before the next part is requested; otherwise the rest is skipped."""


def boundary_of(content_type: str) -> bytes:
    found = _BOUNDARY.match(content_type)
    boundary = (found[1] or found[2]) if found else ""
    if not boundary or len(boundary) > _MAX_BOUNDARY:
        raise BadMultipart("the boundary of the multipart body is missing")
    return boundary.encode("latin-1", "replace")


class Multipart:
    def __init__(self, chunks: AsyncIterator[bytes], boundary: bytes) -> None:
        self._chunks = chunks
        self._mark = b"\r\n--" + boundary
        # Prepend a line end, so that the first boundary looks like all others.
        self._held = bytearray(b"\r\n")
        self._inside = False

    async def parts(self) -> AsyncIterator[Part]:
        async for _ in self._until_mark():  # a preamble is allowed and ignored
            pass
        while await self._another():
            await give_turn()
            name, filename = _disposition(await self._headers())
            self._inside = True
            yield Part(name, filename, self._until_mark())
            if self._inside:
                async for _ in self._until_mark():
                    pass

    async def _until_mark(self) -> AsyncIterator[bytes]:
        self._inside = True
        while (at := self._held.find(self._mark)) < 0:
            # The end of the buffer may be the start of a boundary.
            sure = len(self._held) - len(self._mark) + 1
            if sure > 0:
                piece = bytes(memoryview(self._held)[:sure])
                del self._held[:sure]
                yield piece
            await self._fill()
        piece = bytes(memoryview(self._held)[:at])
        del self._held[: at + len(self._mark)]
        self._inside = False
        if piece:
            yield piece

    async def _another(self) -> bool:
        """Whether another part follows: the last boundary ends with two dashes."""
        while True:
            end = self._held.find(b"\r\n")
            if self._held.startswith(b"--"):
                return False
            if end >= 0:
                if self._held[:end].strip(b" \t"):
                    raise BadMultipart("there is something behind a boundary of the multipart body")
                del self._held[: end + 2]
                return True
            if len(self._held) > _MAX_HEADERS:
                raise BadMultipart("there is something behind a boundary of the multipart body")
            await self._fill()

    async def _headers(self) -> bytes:
        if self._held.startswith(b"\r\n"):
            del self._held[:2]
            return b""
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _MAX_HEADERS:
                raise BadMultipart("the headers of a part are too long")
            await self._fill()
        headers = bytes(memoryview(self._held)[:end])
        del self._held[: end + 4]
        return headers

    async def _fill(self) -> None:
        chunk = await anext(self._chunks, b"")
        if not chunk:
            raise BadMultipart("the multipart body ended before its last boundary")
        self._held += chunk


def _disposition(headers: bytes) -> tuple[str, str | None]:
    """The field's name, and the unmodified file name, including slashes."""
    for line in headers.split(b"\r\n"):
        title, _, value = line.partition(b":")
        if title.strip().lower() != b"content-disposition":
            continue
        found = {
            name.lower(): _ESCAPED.sub(rb"\1", quoted) if quoted else plain
            for name, quoted, plain in _PARAMETER.findall(value)
        }
        filename = _extended(found[b"filename*"]) if b"filename*" in found else found.get(b"filename")
        return _text(found.get(b"name", b"")), None if filename is None else _text(filename)
    return "", None


def _extended(value: bytes) -> bytes:
    """RFC 5987: ``UTF-8''`` and percent escapes."""
    return unquote_to_bytes(value.rpartition(b"'")[2])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
