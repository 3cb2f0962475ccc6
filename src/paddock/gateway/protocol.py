"""Reads the head of every request and decides what answers it: the app or a sandbox.

It stands in uvicorn's place on each connection. What is for the app is handed on, byte for byte, one whole request at a
time; where each ends is counted here, so that the next one is looked at too. What is for a port of a sandbox is served
from the same socket without uvicorn, by a session, until a request comes that is for the app again.
"""

from __future__ import annotations

import asyncio
import os
import re
from functools import partial
from typing import Any

import httptools
import structlog
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paddock import errors
from paddock.gateway import responses
from paddock.gateway.asgi_extensions import ASK, CUT, DIRECT_BODY, FORWARD, TRACKED
from paddock.gateway.client_socket import client_wire
from paddock.gateway.connections import TrackedConnection
from paddock.gateway.direct_upload import LEAST, DirectBody, LentSocket
from paddock.gateway.exchange import HEAD_BYTES
from paddock.gateway.forwarding import ask
from paddock.gateway.gateway import Gateway
from paddock.gateway.port_session import PortSession
from paddock.gateway.request import ClientInfo, read_port_request
from paddock.gateway.routing import ForwardedRequest
from paddock.gateway.write_stalls import StallTimer
from paddock.http1.body_framing import ChunkedEnd, body_of

_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 2.0
_HEAD_END = b"\r\n\r\n"
_BEGINNING = re.compile(rb"[\r\n]*[A-Za-z]")
# A server may pass over an Upgrade that it does not know; uvicorn's parser would stop reading instead.
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:(?![ \t]*websocket[ \t]*\r\n)[^\r\n]*", re.IGNORECASE)

log = structlog.get_logger(__name__)


class _Flow(FlowControl):
    """Reads nothing more while a part of what was read waits for its turn, whoever else wants to go on."""

    backlog = False

    def resume_reading(self) -> None:
        if not self.backlog:
            super().resume_reading()


class GatewayProtocol(HttpToolsProtocol):
    flow: _Flow

    def __init__(self, gateway: Gateway, *arguments: Any, tracked: TrackedConnection, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gateway = gateway
        self.tracked = tracked
        """This connection's place among those that the server holds."""
        self._head_seconds = gateway.context.settings.head_timeout
        self._stall_seconds = gateway.context.settings.stall_timeout
        self._stall: StallTimer | None = None
        self._heard_at = 0.0
        self._held = bytearray()
        """What was read and has no reader yet: part of a head, or what the client sent ahead."""
        self._body_left = 0
        """Of the request that the app has; bytes of a chunked body are counted by ``_chunks``."""
        self._chunks: ChunkedEnd | None = None
        self._parsing = False
        self._session: PortSession | None = None
        self._serving: asyncio.Task[None] | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._dribbling = False
        """Part of a head is there."""
        self._unread_left: int | None = None
        """After the last answer: how much of what still comes is read, and forgotten."""
        self._head = b""  # of the request that the app has
        self._ours = False
        """The head that is held was looked up: its request is answered here."""

    # What uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self.tracked.close = self._make_room
        if self.tracked.ended:  # it was let go of after it was accepted, when nothing could be closed yet
            transport.abort()
            return
        self._stall = StallTimer(transport, self._stall_seconds)
        self._expect(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        self.tracked.end()
        if self._stall is not None:
            self._stall.stop()
        self._held.clear()
        if self._serving is not None:
            self._serving.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        if self._unread_left is not None:
            self._unread_left -= len(data)
            if self._unread_left <= 0:
                self.transport.close()
            return
        if self._body_left > len(data) and not self._held:  # the most of a large upload
            self._body_left -= len(data)
            self._feed(data)
            return
        self._unset_keepalive_if_required()
        self._held += data
        self._advance()

    def on_message_begin(self) -> None:
        self._parsing = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        extensions: dict[str, Any] = {CUT: self.transport.close, TRACKED: self.tracked, FORWARD: self.forward}
        extensions[ASK] = partial(ask, self._gateway.routing, self._head)
        if self._body_left >= LEAST and self.scheme == "http":  # under TLS the socket holds no plain bytes
            extensions[DIRECT_BODY] = DirectBody(self._lend, self._get_back, self._gateway.pouring)
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._parsing = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._head = b""
        self.tracked.idle()
        if self._held:
            self.loop.call_soon(self._advance)

    def shutdown(self) -> None:
        if self._session is not None:
            self._session.stop()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is not None:
            self._stall.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.stop()

    def _make_room(self) -> None:
        """There are too many connections, and this one is not at work for anybody who was let in."""
        if self._serving is not None:
            self._serving.cancel()
        elif self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # it would wait for a client that does not read
        else:
            self.transport.close()

    # Whose it is

    def _advance(self) -> None:
        """Give away what is held, as far as it is known whose it is and its reader is ready for it."""
        while self._held and self._session is None and not self.transport.is_closing():
            if self.flow.backlog:
                return
            if self._body_left or self._chunks is not None:
                self._hand_on_the_body()
                if self._chunks is not None and self._held:
                    self._go_on_later()
            elif self.cycle is not None and not self.cycle.response_complete:
                # Sent ahead. Answers keep the order of their requests, whoever gives them, so this one waits.
                self.flow.pause_reading()
                return
            elif not self._route():
                return

    def _go_on_later(self) -> None:
        """After others had their turn: the chunks of this body are so small that they take their time."""
        self.flow.backlog = True
        self.flow.pause_reading()
        self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self.flow.backlog = False
        self._advance()
        unread = self.cycle is not None and len(self.cycle.body) > HIGH_WATER_LIMIT
        if not (self._held or unread or self._session is not None):
            self.flow.resume_reading()

    def _route(self) -> bool:
        """Whether there was a whole head, and it went somewhere. Empty lines before one are nothing (RFC 9112, 2.2)."""
        del self._held[: len(self._held) - len(self._held.lstrip(b"\r\n"))]
        end = self._held.find(_HEAD_END)
        if end < 0 or end + len(_HEAD_END) > HEAD_BYTES:
            return self._wait_for_more()
        self._head_is_there()
        self.tracked.busy()
        self._unset_keepalive_if_required()
        head = bytes(self._held[: end + len(_HEAD_END)])
        del self._held[: len(head)]
        try:
            request = read_port_request(head, self._gateway.served_ports)
        except errors.MalformedRequest as problem:
            self._refuse(responses.malformed(problem))
            return False
        routing, ours, self._ours = self._gateway.routing, self._ours, False
        if routing.comes_from_server(head):
            self.tracked.trust()
        plain = self.scheme == "http"
        if request is None and (ours or not plain or not routing.concerns(head)):
            self._hand_on_the_head(head)
        elif plain:
            self._serve(head)
        else:
            self._refuse(responses.tls_in_front())
        return True

    def _wait_for_more(self) -> bool:
        if len(self._held) >= HEAD_BYTES:
            self._refuse_and_linger(responses.head_too_long(bytes(self._held), HEAD_BYTES))
        elif not _BEGINNING.match(self._held) and self._held.strip(b"\r\n"):
            self._feed(bytes(self._held))  # no HTTP at all; uvicorn says so
        elif not self._dribbling:
            self._dribbling = True
            if self.tracked.among is self._gateway.tracked.silent:
                self.tracked.begin()
            self._expect(self._head_seconds)
        return False

    def _expect(self, seconds: float) -> None:
        """A whole head within this time."""
        if self._slow is not None:
            self._slow.cancel()
        self._slow = self.loop.call_later(seconds, self._too_slow)

    def _head_is_there(self) -> None:
        self._dribbling = False
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        if self._held:
            self._refuse(responses.malformed(errors.MalformedRequest("The request took too long."), 408))
        else:
            self.transport.close()

    def _refuse(self, answer: responses.GatewayResponse) -> None:
        self._held.clear()
        self.transport.write(answer.encode(close=True))
        self.transport.close()

    def _refuse_and_linger(self, answer: responses.GatewayResponse) -> None:
        """Closing with unread bytes would reset the connection, and a browser would not see the answer."""
        self._held.clear()
        self._unread_left = _LINGER_BYTES
        self.transport.write(answer.encode(close=True))
        self.transport.write_eof()
        self._head_is_there()
        self._slow = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    # The app

    def _hand_on_the_head(self, head: bytes) -> None:
        self._head = head
        self._body_left, self._chunks = body_of(head)
        whole = not self._body_left and self._chunks is None
        if not whole:
            self._heard_at = self.loop.time()
            self._slow = self.loop.call_later(self._stall_seconds, self._body_stalls)
        # Nor is there a change of protocol in the middle of a body.
        self._feed((_OTHER_UPGRADE if whole else _UPGRADE).sub(b"", head))
        successor = self.transport.get_protocol()
        if successor is not self and isinstance(successor, asyncio.Protocol):  # a WebSocket of the app
            successor.data_received(bytes(self._held))
            self._held.clear()
        elif whole:
            self._agree()

    def _hand_on_the_body(self) -> None:
        if self._chunks is None:
            count = min(self._body_left, len(self._held))
            self._body_left -= count
        else:
            try:
                count = self._chunks.feed(memoryview(bytes(self._held)))
            except errors.MalformedRequest as problem:
                self._refuse(responses.malformed(problem))
                return
            if self._chunks.done:
                self._chunks = None
        body = bytes(self._held[:count])
        del self._held[:count]
        self._feed(body)
        if not self._body_left and self._chunks is None:
            self._agree()

    def _body_stalls(self) -> None:
        """Looks whether the body still comes. While nobody reads it, that is no fault of the client's."""
        self._slow = None
        if not self._body_left and self._chunks is None:
            return
        quiet = self.loop.time() - self._heard_at
        if quiet >= self._stall_seconds and not self.flow.read_paused:
            self.transport.abort()
            return
        left = self._stall_seconds - quiet if not self.flow.read_paused else self._stall_seconds
        self._slow = self.loop.call_later(max(0.01, left), self._body_stalls)

    def _feed(self, data: bytes) -> None:
        super().data_received(data)

    def _agree(self) -> None:
        """The request is over by our count. If uvicorn's parser thinks otherwise, nobody knows what comes next."""
        if self._parsing and not self.transport.is_closing():
            self._refuse(responses.malformed(errors.MalformedRequest("The framing of the body is ambiguous.")))

    def _lend(self) -> LentSocket | None:
        """The rest of the body that the app is being sent, if there is any."""
        cycle = self.cycle
        if not self._body_left or self._held or cycle.disconnected or cycle.response_started:
            return None
        self.flow.pause_reading()
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        read, cycle.body = bytes(cycle.body), bytearray()
        return LentSocket(read, os.dup(self.transport.get_extra_info("socket").fileno()), self._body_left)

    def _get_back(self, good: bool) -> None:
        if not good:
            self.transport.abort()
            return
        self._body_left = 0
        self._new_parser()  # the old one waits for a body that it will not see
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self.flow.resume_reading()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._parsing = False

    # A sandbox, or another server

    async def forward(self, node_id: str, body: bytes | None) -> bool:
        """Have the request that the app has answered by that node's server: see :func:`.extensions.forwarded`."""
        cycle = self.cycle
        if self.scheme != "http" or cycle.response_started or self._session is not None:
            return False
        self.flow.pause_reading()  # whoever answers goes on reading
        left = self._body_left if self._chunks is None else None
        forwarded = await self._gateway.routing.take_up(self._head, node_id, body, bytes(cycle.body), left)
        if forwarded is None:
            return False
        if self.transport.is_closing():
            await forwarded.upstream.close()
            return False
        if self._body_left:
            self._new_parser()  # the old one waits for a body that it will not see
            self._body_left = 0
        serving = self._serve(self._head, forwarded)
        await asyncio.wait([serving])
        cycle.response_started = cycle.response_complete = True
        self.on_response_complete()
        return True

    def _serve(self, head: bytes, forwarded: ForwardedRequest | None = None) -> asyncio.Task[None]:
        self.flow.resume_reading()
        self.transport.pause_reading()
        wire = client_wire(self.transport.get_extra_info("socket").fileno())
        wire.ahead += self._held
        self._held.clear()
        address = self.client[0] if self.client else ""
        caller = ClientInfo(address, self._gateway.scheme, self._gateway.tracked.is_proxy(address))
        self._session = PortSession(self._gateway, wire, caller, self.tracked)
        self._serving = serving = self.loop.create_task(self._serve_ports(self._session, head, forwarded))
        serving.add_done_callback(self.tasks.discard)
        self.tasks.add(serving)
        return serving

    async def _serve_ports(self, session: PortSession, head: bytes, forwarded: ForwardedRequest | None) -> None:
        try:
            await self._flushed()
            rest = await (session.run(head) if forwarded is None else session.run_one(forwarded))
        except OSError:
            self._cut()
        except asyncio.CancelledError:
            self._cut()
            raise
        except Exception:
            log.exception("a connection to a sandbox failed")
            self._cut()
        else:
            self._ours = forwarded is None and rest is not None
            self._take_back(rest)

    async def _flushed(self) -> None:
        """What the app wrote last must be out before anything is written beside uvicorn's transport."""
        self.transport.set_write_buffer_limits(0)
        await self.flow.drain()
        self.transport.set_write_buffer_limits()

    def _take_back(self, rest: bytes | None) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._serving = None
        if self.transport.is_closing():
            return
        if rest is None:
            self.transport.close()
            return
        self.transport.resume_reading()
        self.tracked.idle()
        self._held += rest
        self._advance()

    def _cut(self) -> None:
        """Close so that the other side knows that this was no orderly end."""
        if self._session is not None:
            self._session.reset()
        self.transport.abort()
