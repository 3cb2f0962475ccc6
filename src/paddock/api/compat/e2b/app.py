"""The E2B facade: the control plane under ``/e2b``, and the app for envd's port of every sandbox.

Built on its first request (:mod:`paddock.api.on_demand`).
"""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from paddock.api.auth import RateLimiter
from paddock.api.on_demand import OnDemandApp
from paddock.server.context import ServerContext


def mount_e2b(app: FastAPI, context: ServerContext, limiter: RateLimiter) -> None:
    def control() -> FastAPI:
        from paddock.api.compat.e2b.control.app import create_control

        return create_control(context, limiter)

    app.mount("/e2b", OnDemandApp(control))


def envd_app(context: ServerContext, limiter: RateLimiter) -> ASGIApp:
    def envd() -> ASGIApp:
        from paddock.api.compat.e2b.envd.app import create_envd

        return create_envd(context, limiter)

    return OnDemandApp(envd)
