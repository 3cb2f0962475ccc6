"""Both halves of the facade under ``/daytona``: the control plane, and the toolbox."""

from __future__ import annotations

from fastapi import FastAPI

from paddock.api.auth import RateLimiter
from paddock.api.compat.daytona.control.app import create_control
from paddock.api.compat.daytona.toolbox.app import create_toolbox
from paddock.lifecycle.house import House


def mount_daytona(app: FastAPI, house: House, limiter: RateLimiter) -> None:
    app.mount("/daytona/api", create_control(house, limiter))
    app.mount("/daytona/toolbox", create_toolbox(house, limiter))
