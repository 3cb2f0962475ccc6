"""One HTTP exchange with a client of envd: its headers, its body as it comes, and the answer.

Plain ASGI: a command's round trip is short enough for a framework to be seen in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope, Send

from paddock.gateway.asgi_extensions import CUT

_CUT_SECONDS = 2.0
CORS = ((b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"*"))
"""E2B's own SDK runs in browsers too. What protects a sandbox is its token, which no page has by itself."""


class ClientGone(Exception):
    """The client has left before all was said."""


class HttpError(Exception):
    """A failure of a plain route, in envd's words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Body:
    """What the client sends, chunk by chunk: nothing is read before somebody wants it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._over:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._over = not message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk

    async def whole(self, limit: int, too_large: Exception) -> bytes:
        held: list[bytes] = []
        size = 0
        async for chunk in self:
            size += len(chunk)
            if size > limit:
                raise too_large
            held.append(chunk)
        return held[0] if len(held) == 1 else b"".join(held)

    async def disconnected(self) -> None:
        """Until the client leaves. What it still sends is read and forgotten."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class EnvdExchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope=scope)
        self.body = Body(receive)
        self.started = False
        """Half an answer is out: what goes wrong now can only be told by breaking the connection."""
        self._send = send
        self._query: QueryParams | None = None

    @property
    def query(self) -> QueryParams:
        if self._query is None:
            self._query = QueryParams(self.scope.get("query_string", b""))
        return self._query

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": [*raw, *CORS]})

    async def send(self, message: Message) -> None:
        await self._send(message)

    async def write(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def cut(self) -> None:
        """Break the connection in the middle of an answer, which is the only way to tell the client of it."""
        if (cut := self.scope.get("extensions", {}).get(CUT)) is None:
            return  # returning with half an answer does it as well, with a complaint of the server
        cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_SECONDS):
                await self.body.disconnected()

    async def respond(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        length = {} if status in (204, 304) else {"Content-Length": str(len(body))}
        await self.start(status, {**length, **(headers or {})})
        await self.write(b"" if self.method == "HEAD" else body, more=False)

    async def respond_json(self, status: int, document: Any, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(document).encode("ascii", "backslashreplace")
        await self.respond(status, body, {"Content-Type": "application/json", **(headers or {})})
