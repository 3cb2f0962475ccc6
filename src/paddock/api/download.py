"""File responses: the whole file or one range, with a safe file name in the headers."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import formatdate
from typing import Self
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock import errors
from paddock.gateway.asgi_extensions import DIRECT_BODY, BodyCut, DirectBody
from paddock.machine.base import FileInfo, FileType

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_UNSAFE = re.compile(r'[^\x20-\x7e]|["\\%]')


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    length: int
    partial: bool


class Download(Response):
    """Sends exactly ``span.length`` bytes or breaks the connection, so that a truncated file is never taken for
    complete."""

    def __init__(self, info: FileInfo, span: Span, chunks: AsyncGenerator[bytes, None] | None) -> None:
        super().__init__(status_code=206 if span.partial else 200, headers=_headers(info, span))
        self._left = span.length
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if self._chunks is None or not self._left:
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        async with aclosing(self._chunks) as chunks:
            # Read the first bytes before sending the status, so that errors of the file can be reported by it.
            first = await anext(chunks, b"")
            await send(start)
            await self._stream(first, chunks, receive, send)

    async def _stream(self, first: bytes, chunks: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnect(receive))
        try:
            await self._write(first, send)
            while self._left and not gone.done() and (chunk := await anext(chunks, b"")):
                await self._write(chunk, send)
        finally:
            gone.cancel()
        if self._left and not gone.done():
            raise errors.Conflict("The file became shorter while it was read.")

    async def _write(self, chunk: bytes, send: Send) -> None:
        chunk = chunk[: self._left]
        self._left -= len(chunk)
        await send({"type": "http.response.body", "body": chunk, "more_body": self._left > 0})


def span_of(info: FileInfo, headers: Headers) -> Span:
    """Parse a ``Range`` header (RFC 9110, 14). An invalid one is ignored, as specified there."""
    if info.type is not FileType.FILE:
        raise errors.PathConflict(f"{info.path} is a {info.type.value}, not a file.")
    whole = Span(0, info.size, False)
    found = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if found is None or (found[1] == found[2] == "") or headers.get("if-range", _etag(info)) != _etag(info):
        return whole
    if found[1]:
        start = int(found[1])
        end = min(int(found[2]) + 1 if found[2] else info.size, info.size)
        if found[2] and int(found[2]) < start:
            return whole
    else:
        start, end = max(0, info.size - int(found[2])), info.size
    if start >= end:
        raise errors.RangeNotSatisfiable(
            f"The file has {info.size} bytes; the range lies outside.", details={"size": info.size}
        )
    return Span(start, end - start, True)


def _headers(info: FileInfo, span: Span) -> dict[str, str]:
    kind = mimetypes.guess_type(info.name)[0] or "application/octet-stream"
    headers = {
        "Content-Type": kind,
        "Content-Length": str(span.length),
        "Content-Disposition": _disposition(info.name),
        "Accept-Ranges": "bytes",
        "ETag": _etag(info),
        "Last-Modified": formatdate(info.modified_at, usegmt=True),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    if span.partial:
        headers["Content-Range"] = f"bytes {span.start}-{span.start + span.length - 1}/{info.size}"
    return headers


def _disposition(name: str) -> str:
    """Always an attachment: pages written in a sandbox must not run on our origin."""
    plain = _UNSAFE.sub("_", name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'attachment; filename="{plain}"{exact}'


def _etag(info: FileInfo) -> str:
    return f'"{int(info.modified_at * 1000):x}-{info.size:x}"'


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Upload(AsyncIterator[bytes]):
    def __init__(self, scope: Scope, chunks: AsyncIterator[bytes]) -> None:
        self._direct: DirectBody | None = scope.get("extensions", {}).get(DIRECT_BODY)
        self._chunks = chunks
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._begun = True
        return await anext(self._chunks)

    async def copy_to(self, file: int) -> int | None:
        if self._direct is None or self._begun:
            return None
        try:
            return await self._direct.copy_to(file)
        except BodyCut:
            raise ClientDisconnect from None
