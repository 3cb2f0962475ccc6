"""One HTTP exchange with an envd client: headers, streamed request body, and response.

Plain ASGI, because a framework's overhead would be noticeable in a command's round trip.
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
"""E2B's SDK also runs in browsers. Access requires the sandbox's token, which browsers do not send by themselves."""


class ClientGone(Exception):
    """The client disconnected before the response was complete."""


class HttpError(Exception):
    """An error of a plain route, with envd's wording."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Body:
    """The request body in chunks, read on demand."""

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
        """Returns when the client disconnects. Further input is discarded."""
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
        """Whether the response has started: later errors can only be reported by breaking the connection."""
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
        """Break the connection, which is the only way to report an error after the response has started."""
        if (cut := self.scope.get("extensions", {}).get(CUT)) is None:
            return  # returning would break it as well, but uvicorn would log an error
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
