"""Daytona's control plane, mounted at ``/daytona/api``."""

from __future__ import annotations

from fastapi import FastAPI, Response

from paddock.api.auth import RateLimiter
from paddock.api.compat.daytona.control import lists, metrics, notifications, ports, sandboxes, unsupported
from paddock.api.compat.daytona.errors import API
from paddock.api.compat.daytona.route import plain_app
from paddock.server.context import ServerContext

# In the order in which they are tried: fixed paths stand before `/sandbox/{sandbox_id}`.
_ROUTERS = (lists.router, unsupported.router, ports.router, metrics.router, sandboxes.router)


def create_control(context: ServerContext, limiter: RateLimiter) -> FastAPI:
    app = plain_app("Daytona on Paddock", context, limiter, _ROUTERS, API)
    app.include_router(notifications.router)
    app.add_api_route("/health", _health, methods=["GET"])
    return app


async def _health() -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")
