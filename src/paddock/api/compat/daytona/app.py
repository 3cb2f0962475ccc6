"""The Daytona facade under ``/daytona``: the control plane and the toolbox.

Built on its first request (:mod:`paddock.api.on_demand`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import FastAPI

from paddock.api.auth import RateLimiter
from paddock.api.on_demand import OnDemandApp
from paddock.server.context import ServerContext

if TYPE_CHECKING:
    from paddock.api.compat.daytona.toolbox.language import Servers


def mount_daytona(app: FastAPI, context: ServerContext, limiter: RateLimiter) -> None:
    def control() -> FastAPI:
        from paddock.api.compat.daytona.control.app import create_control

        return create_control(context, limiter)

    def toolbox() -> FastAPI:
        from paddock.api.compat.daytona.toolbox.app import create_toolbox

        return create_toolbox(context, limiter)

    app.mount("/daytona/api", OnDemandApp(control))
    app.state.toolbox = OnDemandApp(toolbox)
    app.mount("/daytona/toolbox", app.state.toolbox)


async def close_daytona(app: FastAPI) -> None:
    """Stop the language servers: they belong to this server process, and the next one could not use them."""
    toolbox: OnDemandApp[FastAPI] = app.state.toolbox
    if toolbox.built is not None:
        servers: Servers = toolbox.built.state.language_servers
        await asyncio.gather(*(server.stop() for server in servers.values()))
