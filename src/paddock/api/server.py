"""The server process: uvicorn around the app, with graceful shutdown."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, cast

import structlog
import uvicorn
from fastapi import FastAPI

from paddock import garbage_collection
from paddock.api.app import create_app, failure
from paddock.api.logging import configure_logging
from paddock.errors import PaddockError, Unavailable
from paddock.gateway.connections import ConnectionLimits, Connections, TrackedConnection
from paddock.gateway.gateway import Gateway
from paddock.gateway.listener import BACKLOG, Listener, bind
from paddock.gateway.protocol import GatewayProtocol
from paddock.gateway.responses import GatewayResponse
from paddock.gateway.web_sockets import AppWebSocketProtocol
from paddock.home import PublishedRecord
from paddock.settings import Settings

log = structlog.get_logger(__name__)

_KEEP_ALIVE = 620
"""Longer than the idle timeout of common load balancers, so that the server never closes a connection that they are
about to use."""
_WS_MAX_SIZE = 1 << 20
_MAX_DESCRIPTORS = 1 << 19


class AppLifespan:
    """Like uvicorn's, but exceptions are raised to the caller, who prints one sentence; uvicorn would log a
    traceback."""

    should_exit = False

    def __init__(self, app: FastAPI) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._context = app.router.lifespan_context(app)

    async def startup(self) -> None:
        await self._context.__aenter__()
        if self._app.middleware_stack is None:
            self._app.middleware_stack = self._app.build_middleware_stack()

    async def shutdown(self) -> None:
        await self._context.__aexit__(None, None, None)


class Server(uvicorn.Server):
    """Ends open streams first on shutdown, which would otherwise last until the drain timeout."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, connections: Connections) -> None:
        super().__init__(config)
        self.connections = connections
        self.alone = False
        """Whether nothing else runs in this process."""
        self.on_started: Callable[[], None] = lambda: None
        self._app = app
        self._stopping = app.state.stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Like uvicorn's, but with our own listener: see :mod:`paddock.gateway.listener`."""
        self.lifespan = cast(Any, AppLifespan(self._app))
        await self.lifespan.startup()
        try:
            listening = sockets or bind(self.config.host, self.config.port, BACKLOG)
        except OSError as error:
            await self.lifespan.shutdown()
            raise Unavailable(f"Cannot listen on {self.config.host}:{self.config.port}: {error.strerror}.") from error
        listener = Listener(listening, self.connections, self._protocol)
        self.servers = [cast(asyncio.Server, listener)]
        listener.start()
        self.started = True
        if self.alone:
            garbage_collection.begin()
        self.on_started()

    def _protocol(self, tracked: TrackedConnection) -> asyncio.Protocol:
        make = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, tracked=tracked)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: Settings) -> Server:
    limits = ConnectionLimits.derive(settings.max_connections, settings.max_connections_per_address)
    connections = Connections(limits, settings.trusted_proxies)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], partial(GatewayProtocol, Gateway(app.state.context, connections, _failure))),
        ws=type("AppWebSocketProtocol", (AppWebSocketProtocol,), {"stall_seconds": settings.stall_timeout}),
        ws_max_size=_WS_MAX_SIZE,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout)),
    )
    return Server(config, app, connections)


def _failure(path: str, error: PaddockError) -> GatewayResponse:
    """The app's error response, for requests that do not reach the app."""
    response = failure(path, error)
    return GatewayResponse(response.status_code, response.headers["content-type"], bytes(response.body))


def serve(settings: Settings, started: Callable[[], None] = lambda: None) -> None:
    """Run until a stop signal. Processes in sandboxes keep running. ``started`` is called when the server listens;
    errors before that are raised. The garbage collector may be off until then, because starting creates little garbage.
    """
    configure_logging(settings)
    _take_all_descriptors()
    server = make_server(create_app(settings), settings)
    server.alone = True
    with ExitStack() as published:

        def listening() -> None:
            published.callback(_publish(settings))
            started()

        server.on_started = listening
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has stopped
            server.run()


def _publish(settings: Settings) -> Callable[[], None]:
    """Write the server's address for programs on this machine; returns a function that removes it."""
    try:
        return PublishedRecord.publish(settings.home, settings.local_url).remove
    except OSError as error:  # for example a full disk; the address can still be given by hand
        log.warning("the server's address could not be recorded", problem=str(error))
        return lambda: None


def _take_all_descriptors() -> None:
    """The server needs several per sandbox, and the usual soft limit is 1,024."""
    given, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if allowed == resource.RLIM_INFINITY else min(allowed, _MAX_DESCRIPTORS)
    if given != resource.RLIM_INFINITY and given < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
