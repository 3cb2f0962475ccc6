"""Both halves of the facade under ``/daytona``: the control plane, and the toolbox."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from paddock.api.auth import RateLimiter
from paddock.api.compat.daytona.control.app import create_control
from paddock.api.compat.daytona.toolbox.app import create_toolbox
from paddock.api.compat.daytona.toolbox.language import Servers
from paddock.lifecycle.house import House


def mount_daytona(app: FastAPI, house: House, limiter: RateLimiter) -> None:
    app.mount("/daytona/api", create_control(house, limiter))
    app.state.toolbox = create_toolbox(house, limiter)
    app.mount("/daytona/toolbox", app.state.toolbox)


async def leave_daytona(app: FastAPI) -> None:
    """End what belongs to this server alone: language servers, which the next one could not speak to."""
    servers: Servers = app.state.toolbox.state.language_servers
    await asyncio.gather(*(server.stop() for server in servers.values()))
