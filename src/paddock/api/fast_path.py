"""The two requests that agents make most, without what a framework does for any request.

Finding a route among many, solving what it depends on and reading its body cost FastAPI more than a short command takes
on the rest of its way through this server. Here the path alone decides, the key is checked, the body is read by the
route's own model, and the same function answers. Whatever is not quite ordinary (a body that is not valid, a wish
for events, another content type) goes the long way, which knows what to say about it; and it is the long way that
is documented.
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
    """Innermost but for the app itself: bodies are limited already, and failures become answers further out."""

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
    """What is asked for; None for the long way."""
    if request.headers.get("content-type") != "application/json" or commands.wants_events(request):
        return None
    try:
        asked = model.model_validate(json_limits.loads(body))
    except (ValidationError, ValueError, errors.Invalid):
        return None
    return None if isinstance(asked, RunCommand) and asked.stream else asked


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, for whoever reads it after us."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
