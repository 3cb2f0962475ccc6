"""Authentication and error responses of the facade's routes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ClassVar

import structlog
from fastapi import Depends, FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from paddock import errors
from paddock.api.auth import Calling, GuardedRoute, RateLimiter
from paddock.api.compat.daytona.control.lifecycle import lifecycle_of
from paddock.api.compat.daytona.errors import API, DaytonaError, daytona_response
from paddock.api.failures import request_id_of
from paddock.api.params import RouteTable
from paddock.server.context import ServerContext
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class DaytonaRoute(GuardedRoute):
    """Converts its own errors, so that Daytona clients never receive errors in another format."""

    source: ClassVar[str] = API

    def get_route_handler(self) -> Handler:
        return self.answering(super().get_route_handler())

    def answering(self, handle: Handler) -> Handler:
        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except (
                DaytonaError,
                errors.PaddockError,
                RequestValidationError,
                HTTPException,
                ClientDisconnect,
            ) as problem:
                return self.refusal(request, problem)
            except ValidationError as problem:
                found = [{**error, "loc": ("body", *error["loc"])} for error in problem.errors()]
                return self.refusal(request, RequestValidationError(found))
            except Exception as problem:
                log.exception("unexpected failure", request_id=request_id_of(request))
                return self.refusal(request, problem)

        return answered

    def refusal(self, request: Request, problem: Exception) -> Response:
        return daytona_response(problem, source=self.source, path=request.scope["path"], method=request.method)


def plain_app(title: str, context: ServerContext, limiter: RateLimiter, routers: Any, source: str) -> FastAPI:
    """A separate app, so that its errors are separate too. Shares the native API's rate limiter."""
    app = FastAPI(
        title=title,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    app.state.context = context
    app.state.limiter = limiter
    table = RouteTable(routers)
    for router in routers:
        app.router.routes.extend(router.routes)  # as in `create_app`

    async def refuse(request: Request, problem: Exception) -> Response:
        path = request.scope["path"]
        words = {404: f"Cannot {request.method} {path[:200]}", 405: "Method not allowed"}
        status = problem.status_code if isinstance(problem, HTTPException) else 500
        told = DaytonaError(status, words[status]) if status in words else problem
        allow = table.methods(path.removeprefix(request.scope.get("root_path", "")))
        return daytona_response(told, allow, source=source, path=path, method=request.method)

    app.add_exception_handler(HTTPException, refuse)
    return app


async def _sandbox(caller: Calling, sandbox_id: Annotated[str, Path()]) -> SandboxRow:
    """Find a sandbox by id or name. Other users' sandboxes are not found."""
    return await lifecycle_of(caller.context).find(caller.who, sandbox_id)


SandboxHere = Annotated[SandboxRow, Depends(_sandbox)]
