"""MCP on the loopback of every sandbox: connections made inside it and handled by this process."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from paddock.accounts.tokens import Tokens
from paddock.api.mcp.port import INSIDE
from paddock.http1.limits import MAX_HEAD_BYTES
from paddock.mcp.app import PATH
from paddock.paced_transport import PacedTransport

_KEEP_ALIVE = 60


class McpInside:
    """Implements :class:`~paddock.providers.base.InsideService`."""

    def __init__(self, app: ASGIApp, tokens: Tokens, port: int) -> None:
        self.port = port
        self._tokens = tokens
        self._state = ServerState()
        self._config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
        )

    def variables(self, key: str) -> Mapping[str, str]:
        if not key:
            return {}
        url = f"http://localhost:{self.port}{PATH}"
        return {"PADDOCK_MCP_URL": url, "PADDOCK_MCP_TOKEN": self._tokens.mcp_inside(key)}

    async def serve(self, sandbox_id: str, client: socket.socket) -> None:
        if not self._config.loaded:
            self._config.load()
        loop = asyncio.get_running_loop()
        lost = loop.create_future()
        transport, _ = await loop.connect_accepted_socket(
            lambda: _InsideProtocol(lost, self._config, self._state, {INSIDE: sandbox_id}), client.dup()
        )
        try:
            await lost
        finally:
            with suppress(RuntimeError):  # the event loop is closing
                transport.close()


class _FlowControl(FlowControl):
    """Stops reading while pipelined requests are waiting: otherwise each response would let in more than it removes."""

    def __init__(self, transport: asyncio.Transport, waiting: deque[Any]) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class _InsideProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also reports the end of its connection.

    Reads in slices, and refuses endless heads, trailers and chunk extensions.
    """

    def __init__(
        self, lost: asyncio.Future[None], config: uvicorn.Config, server: ServerState, state: dict[str, Any]
    ) -> None:
        super().__init__(config=config, server_state=server, app_state=state)
        self._lost = lost
        self._framing = 0
        """Bytes since the last body data or end of a head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._paced = PacedTransport(transport, self._feed)
        super().connection_made(cast(asyncio.Transport, self._paced))
        self.flow = _FlowControl(self.transport, self.pipeline)

    def data_received(self, data: bytes) -> None:
        self._paced.receive(data)

    def on_headers_complete(self) -> None:
        self._framing = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._framing = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._lost.done():
            self._lost.set_result(None)

    def _feed(self, data: bytes) -> None:
        self._framing += len(data)
        if self._framing > MAX_HEAD_BYTES + len(data):
            self.send_400_response("The request's framing is too long.")
            return
        super().data_received(data)
