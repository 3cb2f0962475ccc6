"""Server-sent events: a response written as events happen, with keepalives, closed when the client disconnects.

One task iterates the source from start to end, so that the source's resources (a sandbox in use, a watch) are released
where they were acquired.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import structlog
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.accounts.byte_budget import STREAM
from paddock.api.failures import as_error, error_answer, request_id_of

KEEP_ALIVE = 15.0
EVENTS: dict[str, Any] = {
    "text/event-stream": {
        "schema": {
            "type": "object",
            "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
        }
    }
}
"""The OpenAPI schema of a stream: that of one event, whose data is JSON."""
_BUFFERED = 1
"""Number of events; each may be as large as a chunk of output."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    event: str
    """Empty for a comment, which tells the client that the stream is open."""
    data: BaseModel | dict[str, Any]
    id: str | None = None

    def encode(self) -> bytes:
        if not self.event:
            return b": ready\n\n"
        data = self.data.model_dump_json() if isinstance(self.data, BaseModel) else json.dumps(self.data)
        name = f"id: {self.id}\n" if self.id is not None else ""
        return f"event: {self.event}\n{name}data: {data}\n\n".encode()


READY = ServerSentEvent("", {})


class EventStream(Response):
    """Created with :meth:`open`, which raises errors before the first event, while a status can still be sent."""

    media_type = "text/event-stream"

    def __init__(
        self, source: AsyncGenerator[ServerSentEvent, None], request: Request, keep_alive: float = KEEP_ALIVE
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._keep_alive = keep_alive
        self._request_id = request_id_of(request)
        self._stopping: asyncio.Event = request.app.state.stopping
        self._queue: asyncio.Queue[ServerSentEvent | Exception | None] = asyncio.Queue(_BUFFERED)
        self._first: ServerSentEvent | None = None
        self._place = ExitStack()
        """The caller's slot in the stream limit."""
        self._pump = asyncio.create_task(self._run(source), name="event stream")

    @classmethod
    async def open(cls, source: AsyncGenerator[ServerSentEvent, None], request: Request) -> Self:
        """The source must yield its first item soon: ``READY`` if there is no event yet."""
        caller = getattr(request.state, "caller", None)
        place = ExitStack()
        if caller is not None:
            caller.holding.reserve(STREAM)
            place.enter_context(caller.context.streams.enter(caller.who.user_id, caller.who.quota))
        stream = cls(source, request)
        stream._place = place
        try:
            await stream._peek()
        except BaseException:
            await stream._stop()
            raise
        return stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive), name="event stream's client")
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if self._first is not None:
                await _write(send, self._first.encode())
            while (item := await self._next()) is not None:
                await _write(send, item)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            await self._stop()

    async def _peek(self) -> None:
        first = await self._queue.get()
        if isinstance(first, Exception):
            raise first
        if first is None:
            self._queue.put_nowait(None)
        self._first = first

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._keep_alive):
                item = await self._queue.get()
        except TimeoutError:
            return b": keep-alive\n\n"
        return None if item is None else self._encode(item)

    def _encode(self, item: ServerSentEvent | Exception) -> bytes:
        if isinstance(item, ServerSentEvent):
            return item.encode()
        error = as_error(item)
        if error.status == 500:
            structlog.get_logger("paddock.api").error("unexpected failure", request_id=self._request_id, exc_info=item)
        return ServerSentEvent("error", error_answer(error, self._request_id)).encode()

    async def _run(self, source: AsyncGenerator[ServerSentEvent, None]) -> None:
        try:
            async for event in source:
                await self._queue.put(event)
            await self._queue.put(None)
        except Exception as problem:  # noqa: BLE001 (answered as an event; as_error knows every kind)
            await self._queue.put(problem)
            await self._queue.put(None)
        finally:
            await source.aclose()

    async def _watch(self, receive: Receive) -> None:
        """Ends when the client disconnects or the server stops."""
        gone = asyncio.create_task(_disconnect(receive))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            stopping.cancel()
        await self._stop()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def _stop(self) -> None:
        self._place.close()
        self._pump.cancel()
        await asyncio.wait({self._pump})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
