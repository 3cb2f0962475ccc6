"""The server process: uvicorn around the app, stopped gently."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
from contextlib import suppress
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.api.logging import configure_logging
from paddock.gateway.front_door import FrontDoor
from paddock.gateway.gateway import Gateway
from paddock.settings import Settings

_KEEP_ALIVE = 620
"""Longer than the idle time of the usual load balancers, so that it is never we who close a connection under them."""
_WS_MAX_SIZE = 1 << 20
_MOST_DESCRIPTORS = 1 << 19


class Server(uvicorn.Server):
    """Tells open streams first, which would otherwise hold the server until the drain is over."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self.alone = False
        """Nothing else is in this process."""
        self._stopping = app.state.stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.alone:
            # What is there now stays for good: the collector need not walk it again and again while requests wait.
            gc.collect()
            gc.freeze()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: Settings) -> Server:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], partial(FrontDoor, Gateway(app.state.house))),
        ws="websockets-sansio",
        ws_max_size=_WS_MAX_SIZE,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout)),
    )
    return Server(config, app)


def serve(settings: Settings) -> None:
    """Run until a signal says stop. What runs in the sandboxes goes on."""
    configure_logging(settings)
    _take_all_descriptors()
    server = make_server(create_app(settings), settings)
    server.alone = True
    with suppress(KeyboardInterrupt):  # raised again by uvicorn after it has stopped
        server.run()
    if not server.started:
        raise SystemExit(uvicorn.config.STARTUP_FAILURE)


def _take_all_descriptors() -> None:
    """A server holds several for each sandbox, and most systems give 1,024 to whoever does not ask for more."""
    given, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if allowed == resource.RLIM_INFINITY else min(allowed, _MOST_DESCRIPTORS)
    if given != resource.RLIM_INFINITY and given < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
