"""The part of HTTP/1.1 that a service on the loopback needs: JSON requests; JSON, text or line-stream responses.

A client that disconnects during a stream is noticed at once, by the end of its input.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Callable, Union

MAX_HEAD = 64 * 1024
MAX_BODY = 64 << 20
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}


class BadRequest(Exception):
    """The input is not a valid request; the connection is closed."""


class HttpRequest:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body

    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as problem:
            raise Refusal(400, f"The body is not JSON: {problem}") from None
        if not isinstance(found, dict):
            raise Refusal(400, "The body must be a JSON object")
        return found


class Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class StreamedResponse:
    """A streamed response. ``lines`` is closed when the client disconnects."""

    def __init__(self, lines: AsyncGenerator[bytes, None]) -> None:
        self.lines = lines


Answer = Union[StreamedResponse, dict[str, Any], list[Any], str, None]
Handler = Callable[[HttpRequest], Awaitable[Answer]]


class ClientConnection:
    """One client connection with sequential requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._ahead = b""
        """Bytes of the next request that were read while the current one was answered."""

    async def serve(self) -> None:
        try:
            while (request := await self._request()) is not None:
                last = request.headers.get("connection", "").lower() == "close"
                if not await self._answer(request) or last:
                    break
        except BadRequest as problem:
            self._head(400, "text/plain; charset=utf-8", len(str(problem)), close=True)
            self._writer.write(str(problem).encode("ascii", "replace"))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            self._writer.close()

    async def _request(self) -> HttpRequest | None:
        """The next request; None at the end of the connection."""
        try:
            head = self._ahead + await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as problem:
            if problem.partial or self._ahead:
                raise
            return None
        except asyncio.LimitOverrunError:
            raise BadRequest("The head of the request is too large") from None
        self._ahead = b""
        method, path, headers = _parse(head)
        if headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return HttpRequest(method, path.partition("?")[0], headers, await self._body(headers))

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            raise BadRequest("The length of the body is not valid, or too large")
        return await self._reader.readexactly(int(length))

    async def _chunks(self) -> bytes:
        body = b""
        while True:
            try:
                size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
            except (ValueError, asyncio.LimitOverrunError):
                raise BadRequest("A chunk of the body has no valid size") from None
            if size < 0 or len(body) + size > MAX_BODY:
                raise BadRequest("The body is too large")
            body += (await self._reader.readexactly(size + 2))[:-2]
            if size == 0:
                return body

    async def _answer(self, request: HttpRequest) -> bool:
        """Returns False if the connection cannot be reused."""
        try:
            answer = await self._handler(request)
        except Refusal as refusal:
            await self._whole(refusal.status, "text/plain; charset=utf-8", refusal.text.encode())
            return True
        if isinstance(answer, StreamedResponse):
            return await self._stream(answer.lines)
        if isinstance(answer, str):
            await self._whole(200, "text/plain; charset=utf-8", answer.encode())
        else:
            await self._whole(200, "application/json", json.dumps(answer).encode())
        return True

    async def _whole(self, status: int, kind: str, body: bytes) -> None:
        self._head(status, kind, len(body))
        self._writer.write(body)
        await self._writer.drain()

    async def _stream(self, lines: AsyncGenerator[bytes, None]) -> bool:
        self._head(200, "application/x-ndjson", None)
        writing = asyncio.ensure_future(self._write(lines))
        leaving = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not leaving.exception():
                self._ahead = leaving.result()
            if not writing.done() and self._ahead:
                await asyncio.wait({writing})  # not disconnected: it has sent the next request already
            if not writing.done():
                return False
            writing.result()
            return True
        finally:
            for task in (writing, leaving):
                task.cancel()
            await asyncio.wait({writing, leaving})
            await lines.aclose()

    async def _write(self, lines: AsyncGenerator[bytes, None]) -> None:
        async for line in lines:
            self._writer.write(b"%x\r\n%s\r\n" % (len(line), line))
            await self._writer.drain()
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def _head(self, status: int, kind: str, length: int | None, close: bool = False) -> None:
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        extra = "X-Accel-Buffering: no\r\nCache-Control: no-store\r\n" if length is None else ""
        extra += "Connection: close\r\n" if close else ""
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{framing}\r\n{extra}\r\n"
        self._writer.write(head.encode("ascii"))


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *rest = head.decode("latin-1").strip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest("That is not an HTTP request")
    headers = {}
    for each in rest:
        name, colon, value = each.partition(":")
        if not colon:
            raise BadRequest("A header of the request has no value")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1], headers
