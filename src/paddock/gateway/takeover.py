"""A connection taken over from uvicorn for requests to sandboxes and other servers, and given back after them."""

from __future__ import annotations

import asyncio
import socket

import structlog
from uvicorn.protocols.http.flow_control import FlowControl

from paddock.gateway.connections import TrackedConnection
from paddock.gateway.gateway import Gateway
from paddock.gateway.port_session import PortSession
from paddock.gateway.request import ClientInfo, IncomingRequest
from paddock.gateway.routing import ForwardedRequest
from paddock.http1.stream_socket import StreamSocket, probe_peer

log = structlog.get_logger(__name__)


class Takeover:
    """``transport`` is paused by the caller, which goes on with it afterwards."""

    def __init__(
        self, gateway: Gateway, tracked: TrackedConnection, transport: asyncio.Transport, address: str, ahead: bytes
    ) -> None:
        """``ahead``: what was read of the client and has no reader yet."""
        self._transport = transport
        # A second descriptor: the first stays uvicorn's.
        sock = socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno()))
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            probe_peer(sock)
        self._client = StreamSocket(sock)
        self._client.ahead += ahead
        caller = ClientInfo(address, gateway.scheme, gateway.tracked.is_proxy(address))
        self.session = PortSession(gateway, self._client, caller, tracked)

    async def run(
        self, flow: FlowControl, request: IncomingRequest, forwarded: ForwardedRequest | None
    ) -> bytes | None:
        """What was read of the next request, which is for the API; None where the connection is over."""
        try:
            # What the app wrote last must be out before anything is written beside uvicorn's transport.
            self._transport.set_write_buffer_limits(0)
            await flow.drain()
            self._transport.set_write_buffer_limits()
            rest = await (self.session.run(request) if forwarded is None else self.session.run_one(forwarded))
        except OSError:
            self._cut()
        except asyncio.CancelledError:
            self._cut()
            raise
        except Exception:
            log.exception("a connection to a sandbox failed")
            self._cut()
        else:
            self._client.close()
            return rest
        return None

    def _cut(self) -> None:
        """Close so that the other side knows that this was no orderly end."""
        self._client.reset()
        self._transport.abort()
