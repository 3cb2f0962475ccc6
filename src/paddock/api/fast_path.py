"""A shortcut around FastAPI for the two most frequent requests.

Routing, dependency resolution and body parsing take FastAPI longer than a short command takes in the rest of the
server. Here the path selects the route, the key is checked, the body is parsed by the route's model, and the same route
function answers. Any request that is not plain (an invalid body, an event stream, another content type) is passed on to
FastAPI, which reports errors; the documented routes are FastAPI's.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import errors, json_limits
from paddock.api.auth import ADMITTED, Authenticated, admit
from paddock.api.params import IDEMPOTENCY_KEY
from paddock.api.routes import commands, sandboxes
from paddock.gateway.asgi_extensions import forwarded
from paddock.models import CreateSandbox, RunCommand

_KEY = re.compile(IDEMPOTENCY_KEY)


@dataclass(frozen=True, slots=True)
class _FastRoute:
    model: type[BaseModel]
    answer: Callable[[Any, Authenticated, str | None], Awaitable[Response]]


_WAYS: Final[Mapping[str, _FastRoute]] = {
    "/sandboxes/create": _FastRoute(CreateSandbox, sandboxes.create_sandbox),
    "/sandboxes/run-command": _FastRoute(RunCommand, commands.answer_command),
}


class FastPath:
    """The innermost middleware: body limits and error responses are handled by the outer ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = _WAYS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if way is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        caller = scope[ADMITTED] = await admit(request)
        body = await request.body()
        key = request.headers.get("idempotency-key")
        asked = _read(way.model, request, body) if key is None or _KEY.fullmatch(key) else None
        if asked is None:
            await self._app(scope, _again(body, receive), send)
            return
        try:
            answer = await way.answer(asked, caller, key)
        except errors.SandboxElsewhere as elsewhere:
            if not await forwarded(scope, elsewhere, body):
                raise
        else:
            await answer(scope, receive, send)


def _read(model: type[BaseModel], request: Request, body: bytes) -> BaseModel | None:
    """The parsed request; None to pass it on to FastAPI."""
    if request.headers.get("content-type") != "application/json" or commands.wants_events(request):
        return None
    try:
        asked = model.model_validate(json_limits.loads(body))
    except (ValidationError, ValueError, errors.Invalid):
        return None
    return None if isinstance(asked, RunCommand) and asked.stream else asked


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that replays the body."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
