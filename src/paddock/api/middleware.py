"""Around every request: request id, access log, body limit, and a last exception handler.

Every response also gets the headers that keep a browser from rendering it as a page (``gateway/origin.py``): content of
a sandbox never runs on this origin.

Plain ASGI for speed, because every byte passes through. Never logged: keys, query strings, bodies, commands. Refused
requests are rate-limited in the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from paddock import errors, ids
from paddock.accounts.byte_budget import ByteBudget
from paddock.api.byte_accounting import CountedAnswer, CountedBody, holding_of
from paddock.api.cross_origin import CROSS_ORIGIN
from paddock.api.failures import as_error, error_response
from paddock.api.logging import LineLimit
from paddock.api.sockets import close_socket
from paddock.gateway.asgi_extensions import FORWARDED_TO
from paddock.gateway.origin import API_HEADERS, FORGET_WORKERS
from paddock.settings import Settings

Shape = Callable[[Exception], Response]

_API_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in API_HEADERS.items())
_FORGET_WORKERS = (FORGET_WORKERS[0].lower().encode(), FORGET_WORKERS[1].encode())
_REFUSED = (401, 403, 429)
"""Limited for every client. Other failures are limited for clients without a key only."""
_SOCKET_FAILED = range(4400, 4600)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_FILES = re.compile(r"/sandboxes/[^/]+/files")
_TOOLBOX_FILES = re.compile(r"/daytona/toolbox/[^/]+/files/(?:bulk-upload|upload|upload-v2)")


class RequestMiddleware:
    """The outermost middleware: sets the request id, writes the log, and answers uncaught exceptions."""

    def __init__(self, app: ASGIApp, budget: ByteBudget, shapes: Mapping[str, Shape] = MappingProxyType({})) -> None:
        """``shapes``: error formats of other APIs by path prefix."""
        self._app = app
        self._budget = budget
        self._shapes = shapes
        self._log = structlog.get_logger("paddock.api")
        self._limit = LineLimit(self._tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        holding = holding_of(scope, self._budget)
        exchange = _Exchange(scope, send, request_id)
        began = time.perf_counter()
        try:
            _check_utf8(scope)
            if exchange.wants_worker:
                raise errors.Forbidden("Nothing on this origin is a service worker.")
            body = CountedBody.of(scope, receive, holding)
            await self._app(scope, body, CountedAnswer(exchange.send, holding))
        except WebSocketDisconnect:
            pass  # the client disconnected while the response was sent
        except Exception as problem:  # noqa: BLE001 (the last catch: what nobody knew is logged with its traceback)
            await self._answer_uncaught(problem, scope, receive, exchange)
        finally:
            holding.release()
            self._note(scope, exchange, time.perf_counter() - began)

    def _note(self, scope: Scope, exchange: _Exchange, seconds: float) -> None:
        user, status = scope["state"].get("user"), exchange.status
        failed = status - 4000 if status in _SOCKET_FAILED else status
        refused = failed in _REFUSED or (user is None and 400 <= failed < 500)
        if refused and not self._limit.admits(str(failed)):
            return
        self._log.info(
            "request",
            method=scope.get("method", "WS"),
            path=scope["path"][:300],
            status=status,
            duration=round(seconds, 6),
            request_id=exchange.request_id,
            user=user,
            **({"forwarded_to": node} if (node := scope["state"].get(FORWARDED_TO)) else {}),
        )

    def _tell(self, kind: str, left_out: int) -> None:
        self._log.info("refused requests left out", status=int(kind), count=left_out)

    async def _answer_uncaught(self, problem: Exception, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        error = as_error(problem)
        if error.status == 500:
            self._log.error("unexpected failure", request_id=exchange.request_id, exc_info=problem)
        if scope["type"] == "websocket":
            with suppress(RuntimeError):
                await close_socket(scope, receive, exchange.send, error, accepted=exchange.started)
        elif not exchange.started:
            shape = next((shape for prefix, shape in self._shapes.items() if scope["path"].startswith(prefix)), None)
            answer = error_response(error, exchange.request_id) if shape is None else shape(error)
            await answer(scope, receive, exchange.send)
        else:
            # The response has started: only a broken connection tells the client that it is incomplete.
            raise problem


class BodyLimitMiddleware:
    """Refuses a body whose declared size is too large, and stops reading one that grows too large."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._json = settings.max_json_body
        self._file = settings.max_file_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._limit(scope)
        if limit is None:
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, counted, send)

    def _limit(self, scope: Scope) -> int | None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            return None
        path = scope["path"]
        if path == "/sandboxes/write-file":
            return self._file
        if scope["method"] == "PUT" and _FILES.fullmatch(path):
            return None
        if scope["method"] == "POST" and _TOOLBOX_FILES.fullmatch(path):
            return None
        return self._json


class _Exchange:
    """Tracks what was sent, and adds the request id to the headers."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self.request_id = request_id
        self.wants_worker = any(name == b"service-worker" for name, _ in scope["headers"])
        """A browser requests the script of a service worker, which could intercept all requests of this origin's pages.
        """
        self.status = 0
        self.started = False
        self._send = send
        self._state = scope["state"]
        self._header = (b"x-request-id", request_id.encode())

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                self.started = True
                self.status = message["status"]
                message = {**message, "headers": self._guarded(message.get("headers", ()))}
            case "websocket.accept":
                self.started = True
                self.status = 101
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            case "websocket.close":
                self.status = message.get("code", 1000)
        await self._send(message)

    def _guarded(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Routes may override these headers; applications in sandboxes cannot."""
        cross_origin = self._state.get(CROSS_ORIGIN, ())
        given = [*headers, self._header, *cross_origin, *((_FORGET_WORKERS,) if self.wants_worker else ())]
        said = {name.lower() for name, _ in given}
        return [*given, *(header for header in _API_HEADERS if header[0] not in said)]


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else ids.new_request_id()


def _check_utf8(scope: Scope) -> None:
    """A path that is not UTF-8 would be decoded lossily into the name of another file."""
    for raw in (scope.get("raw_path") or b"", scope.get("query_string") or b""):
        if b"%" in raw or not raw.isascii():
            try:
                unquote_to_bytes(raw).decode()
            except UnicodeDecodeError:
                raise errors.MalformedRequest("The URL is not valid UTF-8.") from None


def _too_large(limit: int) -> errors.PayloadTooLarge:
    return errors.PayloadTooLarge(
        f"The body is larger than the {limit} bytes that this route takes; "
        "stream files with PUT /sandboxes/{sandbox_id}/files.",
        details={"limit": limit},
    )
