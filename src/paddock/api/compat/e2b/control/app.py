"""E2B's control plane, mounted at ``/e2b``: an app of its own, with E2B's error format."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from paddock.api.auth import RateLimiter
from paddock.api.compat.e2b.control import lists, metrics_and_logs, sandboxes, templates, unsupported
from paddock.api.compat.e2b.control.replay import Replay
from paddock.api.compat.e2b.errors import E2BError, e2b_response
from paddock.api.params import RouteTable
from paddock.server.context import ServerContext

# In the order in which they are tried: fixed paths stand before `/sandboxes/{sandbox_id}` and `/templates/{…}`.
_ROUTERS = (metrics_and_logs.router, lists.router, unsupported.router, sandboxes.router, templates.router)


def create_control(context: ServerContext, limiter: RateLimiter) -> FastAPI:
    """Shares the native API's limiter, so that a user's requests are counted together."""
    app = FastAPI(
        title="E2B on Paddock",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    app.state.context = context
    app.state.limiter = limiter
    app.state.replay = Replay()
    table = RouteTable(_ROUTERS)
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)  # as in `create_app`
    app.add_api_route("/health", _health, methods=["GET"])

    async def refuse(request: Request, problem: Exception) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        return e2b_response(_in_words(problem), table.methods(path))

    app.add_exception_handler(HTTPException, refuse)
    return app


async def _health() -> Response:
    return Response(status_code=204, headers={"Content-Length": "0"})


def _in_words(problem: Exception) -> Exception:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    words = {404: "route not found", 405: "method not allowed"}
    return E2BError(status, words[status]) if status in words else problem
