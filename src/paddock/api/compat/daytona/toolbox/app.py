"""Daytona's toolbox, mounted at ``/daytona/toolbox``: the first segment of every path is the sandbox's id."""

from __future__ import annotations

from fastapi import FastAPI

from paddock.api.auth import RateLimiter
from paddock.api.compat.daytona.errors import DAEMON
from paddock.api.compat.daytona.route import plain_app
from paddock.api.compat.daytona.toolbox import (
    files,
    git_routes,
    info,
    interpreter,
    language,
    processes,
    pty,
    session_routes,
    transfer,
)
from paddock.server.context import ServerContext

_ROUTERS = (
    info.router,
    processes.router,
    session_routes.router,
    pty.router,
    interpreter.router,
    transfer.signed,
    transfer.router,
    files.router,
    git_routes.router,
    language.router,
)


def create_toolbox(context: ServerContext, limiter: RateLimiter) -> FastAPI:
    app = plain_app("Daytona's toolbox on Paddock", context, limiter, _ROUTERS, DAEMON)
    app.state.language_servers = {}
    return app
