"""WebSockets of the app: uvicorn's protocol, counted like any connection, and not blocked by a peer that does not read,
or that sends very many tiny frames."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from paddock.gateway.asgi_extensions import TRACKED
from paddock.gateway.connections import StallAborting, StallTimer, TrackedConnection
from paddock.loop_turns import give_turn
from paddock.paced_transport import PacedTransport


class AppWebSocketProtocol(StallAborting, WebSocketsSansIOProtocol):
    """``stall_seconds`` is set on a subclass, because uvicorn takes a class and nothing else."""

    stall_seconds = 60.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tracked: TrackedConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._paced = PacedTransport(cast(asyncio.Transport, transport), super().data_received)
        super().connection_made(cast(asyncio.Transport, self._paced))
        self._tracked = getattr(
            self.transport.get_protocol(), "tracked", None
        )  # of the GatewayProtocol that accepted it
        self._stall = StallTimer(self.transport, self.stall_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stall is not None:
            self._stall.stop()
        if self._tracked is not None:
            self._tracked.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._paced.receive(data)

    async def receive(self) -> Any:
        await give_turn()
        return await super().receive()

    def handle_cont(self, event: Any) -> None:
        """Empty frames of a message that never ends are dropped: the limit on its size does not count them."""
        if event.data or event.fin:
            super().handle_cont(event)

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope") and self._tracked is not None:
            extensions: dict[str, Any] = {**(self.scope["extensions"] or {}), TRACKED: self._tracked}
            self.scope["extensions"] = extensions

    def handle_ping(self) -> None:
        """Pongs are dropped for a peer that sends pings and reads nothing: each would be buffered."""
        answer = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(answer)
