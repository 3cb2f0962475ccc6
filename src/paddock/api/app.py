"""Builds the ASGI application from the settings. There is no module-level state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from paddock import __version__, errors, ids
from paddock.api import docs_page, openapi
from paddock.api.auth import RateLimiter
from paddock.api.builtin_ports import BuiltinPorts
from paddock.api.compat.daytona.app import close_daytona, mount_daytona
from paddock.api.compat.daytona.errors import daytona_response
from paddock.api.compat.e2b.app import envd_app, mount_e2b
from paddock.api.compat.e2b.errors import e2b_response
from paddock.api.cross_origin import CrossOrigin
from paddock.api.failures import as_error, error_response, request_id_of
from paddock.api.fast_path import FastPath
from paddock.api.mcp.inside import McpInside
from paddock.api.mcp.port import McpPort
from paddock.api.middleware import BodyLimitMiddleware, RequestMiddleware
from paddock.api.params import RouteTable
from paddock.api.routes import ROUTERS
from paddock.api.sockets import refuse_socket
from paddock.server.context import ServerContext, build_context
from paddock.settings import Settings

_SHAPES: Final = {"/e2b/": e2b_response, "/daytona/": daytona_response}


def create_app(settings: Settings | None = None, *, context: ServerContext | None = None) -> FastAPI:
    """An app with its own server context, or with a given one. The lifespan opens and closes it."""
    context = context or build_context(settings or Settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        inside = McpInside(RequestMiddleware(mcp.app, context.in_flight), context.tokens, context.settings.mcp_port)
        for provider in context.providers.values():
            provider.answer_inside(inside)
        await context.open()
        try:
            yield
        finally:
            app.state.stopping.set()
            await close_daytona(app)
            await mcp.close()
            await context.close()

    app = FastAPI(
        title="Paddock",
        version=__version__,
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    app.state.context = context
    app.state.limiter = RateLimiter()
    mcp = McpPort(context, app.state.limiter)
    app.state.stopping = asyncio.Event()
    app.state.routes = RouteTable(ROUTERS)
    for router in (*ROUTERS, docs_page.router):
        app.router.routes.extend(router.routes)  # `include_router` would compile every route again for each app
    mount_e2b(app, context, app.state.limiter)
    mount_daytona(app, context, app.state.limiter)
    openapi.install(app)
    _answer_failures(app)
    app.add_middleware(FastPath)
    app.add_middleware(BodyLimitMiddleware, settings=context.settings)
    app.add_middleware(CrossOrigin, origins=context.settings.cors_origins)
    app.add_middleware(
        BuiltinPorts, envd=envd_app(context, app.state.limiter), mcp=mcp.app, mcp_port=context.settings.mcp_port
    )
    app.add_middleware(RequestMiddleware, budget=context.in_flight, shapes=_SHAPES)
    return app


def failure(path: str, error: errors.PaddockError) -> Response:
    """The error response for this path, in the format of the API that it belongs to."""
    shape = next((shape for prefix, shape in _SHAPES.items() if path.startswith(prefix)), None)
    return error_response(error, ids.new_request_id()) if shape is None else shape(error)


def _answer_failures(app: FastAPI) -> None:
    kinds: tuple[type[Exception], ...] = (
        errors.PaddockError,
        RequestValidationError,
        WebSocketRequestValidationError,
        HTTPException,
        ClientDisconnect,
    )
    for kind in kinds:
        app.add_exception_handler(kind, _refuse)  # type: ignore[arg-type]
    router: Router = app.router
    router.default = _no_route


async def _refuse(connection: Request | WebSocket, problem: Exception) -> Response | None:
    if isinstance(connection, WebSocket):
        await refuse_socket(connection, problem)
        return None
    allow: list[str] = []
    if isinstance(problem, HTTPException | errors.MethodNotAllowed):
        table: RouteTable = connection.app.state.routes
        allow = table.methods(connection.url.path) or _allow(problem)
    if (error := as_error(problem)).status == errors.InternalError.status:
        raise problem  # for RequestMiddleware, which logs it
    return error_response(error, request_id_of(connection), allow)


def _allow(problem: Exception) -> list[str]:
    headers = getattr(problem, "headers", None) or {}
    return [headers["Allow"]] if "Allow" in headers else []


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
