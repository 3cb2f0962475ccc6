"""Authentication and rate limits. Applied before the body is read, so that unauthenticated requests cost little."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response, WebSocket
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from paddock import errors, json_limits
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import STREAM, Reservation
from paddock.api.byte_accounting import holding_of
from paddock.gateway.asgi_extensions import forwarded, prove
from paddock.server.context import ServerContext
from paddock.workers import Workers

_LARGE_BODY = 4 << 20
"""Bytes whose parsing would block the event loop noticeably."""
ADMITTED = "paddock.admitted"
"""Scope key of the authenticated caller, once the API key was checked."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Dependency of routes: the server context and the authenticated caller."""

    context: ServerContext
    who: Principal
    holding: Reservation
    """The memory reserved for this request."""


class RateLimiter:
    """A token bucket per user: a number of requests per second, with bursts of twice that. In memory, per process."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, max_users: int = 10_000) -> None:
        self._monotonic = monotonic
        self._max_users = max_users
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, who: Principal) -> None:
        rate = who.quota.requests_per_second
        if rate <= 0:
            return
        now, burst = self._monotonic(), max(1.0, 2 * rate)
        tokens, at = self._buckets.get(who.user_id, (burst, now))
        tokens = min(burst, tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[who.user_id] = (tokens, now)
            raise errors.TooManyRequests(
                f"{who.user_id} is limited to {rate:g} requests per second; wait a moment.",
                details={"requests_per_second": rate},
                retry_after=(1 - tokens) / rate,
            )
        if who.user_id not in self._buckets and len(self._buckets) >= self._max_users:
            # An unused bucket is full again, so dropping it has no effect but one burst.
            self._buckets.clear()
        self._buckets[who.user_id] = (tokens - 1, now)


class JsonRequest(Request):
    """Parses large bodies off the event loop."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, workers: Workers) -> None:
        super().__init__(scope, receive, send)
        self._workers = workers

    async def json(self) -> Any:
        body = await self.body()
        return await self._workers.run(json.loads, body) if len(body) > _LARGE_BODY else json.loads(body)


class AnsweredElsewhere(Response):
    """Another server has answered, on the same connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class GuardedRoute(APIRoute):
    """A route that requires an API key. It also reads the body, so that its limits can still be reported by a
    status."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Accepts JSON whatever the ``Content-Type``: SDKs of other platforms send none."""
        super().__init__(*args, **{**options, "strict_content_type": False})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        has_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            caller: Authenticated = request.scope.get(ADMITTED) or await admit(request)
            request.state.caller = caller
            body = None
            if has_body:
                workers = caller.context.workers.of(caller.who.user_id)
                request = JsonRequest(request.scope, request.receive, request._send, workers=workers)
                await json_limits.check_large(body := await request.body())
            try:
                return await handle(request)
            except errors.SandboxElsewhere as elsewhere:
                if await forwarded(request.scope, elsewhere, body):
                    return AnsweredElsewhere()
                raise

        return guarded


async def admit(connection: HTTPConnection) -> Authenticated:
    key = _key(connection.headers)
    if key is None:
        raise errors.Unauthorized("Give an API key, as `Authorization: Bearer <key>` or `X-API-Key: <key>`.")
    context: ServerContext = connection.app.state.context
    return _let_in(connection, context, await context.accounts.authenticate(key))


async def admit_with(connection: HTTPConnection, key: str) -> Authenticated:
    """Authenticate with a key from a message instead of a header."""
    context: ServerContext = connection.app.state.context
    return _let_in(connection, context, await context.accounts.authenticate(key))


def _let_in(connection: HTTPConnection, context: ServerContext, who: Principal) -> Authenticated:
    connection.state.user = who.user_id
    prove(connection.scope, who)
    limiter: RateLimiter = connection.app.state.limiter
    limiter.take(who)
    holding = holding_of(connection.scope, context.in_flight)
    holding.belongs_to(who.user_id)
    return Authenticated(context, who, holding)


async def _caller(request: Request) -> Authenticated:
    caller: Authenticated = request.state.caller
    return caller


async def _socket_caller(websocket: WebSocket) -> AsyncIterator[Authenticated]:
    """Counts the WebSocket against the caller's stream limit."""
    caller = await _admit_socket(websocket)
    caller.holding.reserve(STREAM)
    with caller.context.streams.enter(caller.who.user_id, caller.who.quota):
        yield caller


async def _admit_socket(websocket: WebSocket) -> Authenticated:
    """With a key, or a ticket for this sandbox, because browsers cannot send headers with a WebSocket."""
    ticket = websocket.query_params.get("ticket")
    if ticket is None or _key(websocket.headers) is not None:
        return await admit(websocket)
    context: ServerContext = websocket.app.state.context
    shown = await context.tokens.redeem(ticket)
    if shown.port is not None or shown.sandbox_id != websocket.path_params.get("sandbox_id"):
        raise errors.Unauthorized("This ticket is for something else.")
    return _let_in(websocket, context, await context.accounts.stand_for(shown.user_id))


Calling = Annotated[Authenticated, Depends(_caller)]
SocketCalling = Annotated[Authenticated, Depends(_socket_caller)]


def _key(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip() or None
