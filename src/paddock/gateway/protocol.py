"""Reads the head of every request and decides what answers it: the app or a sandbox.

It replaces uvicorn's protocol on each connection. What is for the app is passed on, byte for byte, one whole request at
a time; where each ends is counted here, so that the next one is read, too. What is for a port of a sandbox is served
from the same socket without uvicorn, by a session, until a request comes that is for the app again.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paddock import errors
from paddock.gateway import asgi_extensions as extension
from paddock.gateway import responses
from paddock.gateway.asgi_extensions import BodySocket, DirectBody
from paddock.gateway.connections import StallAborting, StallTimer, TrackedConnection
from paddock.gateway.forwarding import ask
from paddock.gateway.gateway import Gateway
from paddock.gateway.port_session import PortSession
from paddock.gateway.request import IncomingRequest, read_request
from paddock.gateway.routing import ForwardedRequest
from paddock.gateway.takeover import Takeover
from paddock.http1.body import ChunkedEnd, ContentLengthEnd, app_body_end
from paddock.http1.limits import LINGER_BYTES, LINGER_SECONDS, MAX_HEAD_BYTES

_HEAD_END = b"\r\n\r\n"
_BEGINNING = re.compile(rb"[\r\n]*[A-Za-z]")
# A server may pass over an Upgrade that it does not know; uvicorn's parser would stop reading instead.
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:(?![ \t]*websocket[ \t]*\r\n)[^\r\n]*", re.IGNORECASE)


class _Flow(FlowControl):
    """Reads nothing more while a part of what was read waits to be parsed, even where uvicorn would go on."""

    backlog = False

    def resume_reading(self) -> None:
        if not self.backlog:
            super().resume_reading()


class GatewayProtocol(StallAborting, HttpToolsProtocol):
    flow: _Flow

    def __init__(self, gateway: Gateway, *arguments: Any, tracked: TrackedConnection, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gateway = gateway
        self.tracked = tracked
        """This connection's place among those that the server holds."""
        self._head_seconds = gateway.context.settings.head_timeout
        self._stall_seconds = gateway.context.settings.stall_timeout
        self._read_at = 0.0
        self._held = bytearray()
        """What was read and has no reader yet: part of a head, or what the client sent ahead."""
        self._body: ContentLengthEnd | ChunkedEnd = ContentLengthEnd(0)
        """Where the body ends of the request that the app has."""
        self._parsing = False
        self._session: PortSession | None = None
        self._serving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head_begun = False
        self._unread_left: int | None = None
        """After the last response: how much of what still comes is read, and dropped."""
        self._head = b""  # of the request that the app has
        self._parsed: IncomingRequest | None = None  # of that head
        self._handed_back: IncomingRequest | None = None
        """The request that is held, as a session has read it: it is answered here."""

    # What uvicorn calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self.tracked.close = self._make_room
        if self.tracked.ended:  # closed after it was accepted, before there was a transport
            transport.abort()
            return
        self._stall = StallTimer(transport, self._stall_seconds)
        self._await_head(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.tracked.end()
        if self._stall is not None:
            self._stall.stop()
        self._held.clear()
        if self._serving is not None:
            self._serving.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._read_at = self.loop.time()
        if self._unread_left is not None:
            self._unread_left -= len(data)
            if self._unread_left <= 0:
                self.transport.close()
            return
        if self._bytes_left > len(data) and not self._held:  # the most of a large upload
            self._body.feed(memoryview(data))
            self._feed(data)
            return
        self._unset_keepalive_if_required()
        self._held += data
        self._advance()

    def on_message_begin(self) -> None:
        self._parsing = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        extensions: dict[str, Any] = {extension.CUT: self.transport.close, extension.TRACKED: self.tracked}
        extensions |= {extension.FORWARD: self.forward, extension.ASK: self._ask}
        if (
            self._bytes_left >= extension.MIN_DIRECT_BYTES and self.scheme == "http"
        ):  # under TLS the socket holds no plain bytes
            threads = self._gateway.upload_threads
            extensions[extension.DIRECT_BODY] = DirectBody(self._take_body_socket, self._body_was_read, threads)
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._parsing = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._head, self._parsed = b"", None
        self.tracked.idle()
        if self._held:
            self.loop.call_soon(self._advance)

    def shutdown(self) -> None:
        if self._session is not None:
            self._session.stop()
        else:
            super().shutdown()

    def _make_room(self) -> None:
        """There are too many connections, and this one is not at work."""
        if self._serving is not None:
            self._serving.cancel()
        elif self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # it would wait for a client that does not read
        else:
            self.transport.close()

    # App or sandbox

    def _advance(self) -> None:
        """Pass on what is held, as far as it is known for whom it is, and that reader is ready."""
        while self._held and self._session is None and not self.transport.is_closing():
            if self.flow.backlog:
                return
            if not self._body.done:
                self._pass_body()
                if not self._body.done and self._held:
                    self._advance_later()
            elif self.cycle is not None and not self.cycle.response_complete:
                # Pipelined. Responses keep the order of their requests, so this one waits.
                self.flow.pause_reading()
                return
            elif not self._route():
                return

    def _advance_later(self) -> None:
        """After other tasks had their turn: the chunks of this body are very small."""
        self.flow.backlog = True
        self.flow.pause_reading()
        self.loop.call_soon(self._advance_again)

    def _advance_again(self) -> None:
        self.flow.backlog = False
        self._advance()
        unread = self.cycle is not None and len(self.cycle.body) > HIGH_WATER_LIMIT
        if not (self._held or unread or self._session is not None):
            self.flow.resume_reading()

    def _route(self) -> bool:
        """Whether there was a whole head, which was passed on. Empty lines before one are nothing (RFC 9112, 2.2)."""
        del self._held[: len(self._held) - len(self._held.lstrip(b"\r\n"))]
        end = self._held.find(_HEAD_END)
        if end < 0 or end + len(_HEAD_END) > MAX_HEAD_BYTES:
            return self._wait_for_more()
        self._head_begun = False
        self._stop_timer()
        self.tracked.busy()
        self._unset_keepalive_if_required()
        head = bytes(self._held[: end + len(_HEAD_END)])
        del self._held[: len(head)]
        request, self._handed_back = self._handed_back, None
        ours = request is not None and request.data.endswith(head)
        try:
            request = request if ours else self._gateway.read(head)
        except errors.MalformedRequest as problem:
            self._refuse(responses.malformed(problem.message))
            return False
        routing, plain = self._gateway.routing, self.scheme == "http"
        if request is not None and routing.comes_from_server(request):
            self.tracked.trust()
        api = request is None or request.port_request is None
        if request is None or (api and (ours or not plain or not routing.concerns(request))):
            self._pass_head(head, request)
        elif plain:
            self._serve(request)
        else:
            self._refuse(responses.tls_in_front())
        return True

    def _wait_for_more(self) -> bool:
        if len(self._held) >= MAX_HEAD_BYTES:
            self._refuse_and_linger(responses.head_too_long(bytes(self._held), MAX_HEAD_BYTES))
        elif not _BEGINNING.match(self._held) and self._held.strip(b"\r\n"):
            self._feed(bytes(self._held))  # no HTTP at all; uvicorn answers
        elif not self._head_begun:
            self._head_begun = True
            if self.tracked.among is self._gateway.tracked.silent:
                self.tracked.begin()
            self._await_head(self._head_seconds)
        return False

    def _await_head(self, seconds: float) -> None:
        """A whole head within this time."""
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._head_timed_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_timed_out(self) -> None:
        if self._held:
            self._refuse(responses.malformed("The request took too long.", 408))
        else:
            self.transport.close()

    def _refuse(self, answer: responses.GatewayResponse) -> None:
        self._held.clear()
        self.transport.write(answer.encode(close=True))
        self.transport.close()

    def _refuse_and_linger(self, answer: responses.GatewayResponse) -> None:
        """Closing with unread bytes would reset the connection, and a browser would not see the response."""
        self._held.clear()
        self._unread_left = LINGER_BYTES
        self.transport.write(answer.encode(close=True))
        self.transport.write_eof()
        self._stop_timer()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # The app

    @property
    def _bytes_left(self) -> int:
        """Of the body that the app is being sent, where its length is known."""
        return self._body.left if isinstance(self._body, ContentLengthEnd) else 0

    def _pass_head(self, head: bytes, request: IncomingRequest | None) -> None:
        self._head, self._parsed = head, request
        self._body = app_body_end(head)
        whole = self._body.done
        if not whole:
            self._read_at = self.loop.time()
            self._timer = self.loop.call_later(self._stall_seconds, self._body_stalls)
        # Nor is there a change of protocol in the middle of a body.
        self._feed((_OTHER_UPGRADE if whole else _UPGRADE).sub(b"", head))
        successor = self.transport.get_protocol()
        if successor is not self and isinstance(successor, asyncio.Protocol):  # a WebSocket of the app
            successor.data_received(bytes(self._held))
            self._held.clear()
        elif whole:
            self._check_end()

    def _pass_body(self) -> None:
        try:
            count = self._body.feed(memoryview(bytes(self._held)))
        except errors.MalformedRequest as problem:
            self._refuse(responses.malformed(problem.message))
            return
        body = bytes(self._held[:count])
        del self._held[:count]
        self._feed(body)
        if self._body.done:
            self._check_end()

    def _body_stalls(self) -> None:
        """Abort if no bytes of the body arrive although they are read."""
        self._timer = None
        if self._body.done:
            return
        quiet = 0.0 if self.flow.read_paused else self.loop.time() - self._read_at
        if quiet >= self._stall_seconds:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(max(0.01, self._stall_seconds - quiet), self._body_stalls)

    def _feed(self, data: bytes) -> None:
        super().data_received(data)

    def _check_end(self) -> None:
        """The request has ended by our count. If uvicorn's parser expects more, the connection is closed."""
        if self._parsing and not self.transport.is_closing():
            self._refuse(responses.malformed("The framing of the body is ambiguous."))

    def _take_body_socket(self) -> BodySocket | None:
        """The rest of the body that the app is being sent, if there is any."""
        cycle = self.cycle
        if not self._bytes_left or self._held or cycle.disconnected or cycle.response_started:
            return None
        self.flow.pause_reading()
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        read, cycle.body = bytes(cycle.body), bytearray()
        return BodySocket(read, os.dup(self.transport.get_extra_info("socket").fileno()), self._bytes_left)

    def _body_was_read(self, whole: bool) -> None:
        if not whole:
            self.transport.abort()
            return
        self._forget_body()
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self.flow.resume_reading()

    def _forget_body(self) -> None:
        """It is read elsewhere: uvicorn's parser would wait for it."""
        self._body = ContentLengthEnd(0)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._parsing = False

    # A sandbox, or another server

    def _whole_request(self) -> IncomingRequest | None:
        """The request that the app has, as another server may be sent it."""
        return self._parsed or read_request(self._head, self._gateway.served_ports, always=True)

    async def _ask(self, node_id: str, target: bytes) -> bytes | None:
        request = self._whole_request()
        return None if request is None else await ask(self._gateway.routing, request, node_id, target)

    async def forward(self, node_id: str, body: bytes | None) -> bool:
        """Have the request that the app has answered by that node's server: see :func:`.asgi_extensions.forwarded`."""
        cycle, request = self.cycle, self._whole_request()
        if request is None or self.scheme != "http" or cycle.response_started or self._session is not None:
            return False
        self.flow.pause_reading()  # the exchange with that server goes on reading
        left = None if isinstance(self._body, ChunkedEnd) and not self._body.done else self._bytes_left
        forwarded = await self._gateway.routing.take_up(request, node_id, body, bytes(cycle.body), left)
        if forwarded is None:
            return False
        if self.transport.is_closing():
            await forwarded.upstream.close()
            return False
        if self._bytes_left:
            self._forget_body()
        serving = self._serve(request, forwarded)
        await asyncio.wait([serving])
        cycle.response_started = cycle.response_complete = True
        self.on_response_complete()
        return True

    def _serve(self, request: IncomingRequest, forwarded: ForwardedRequest | None = None) -> asyncio.Task[None]:
        self.flow.resume_reading()
        self.transport.pause_reading()
        address = self.client[0] if self.client else ""
        takeover = Takeover(self._gateway, self.tracked, self.transport, address, bytes(self._held))
        self._held.clear()
        self._session = takeover.session
        self._serving = serving = self.loop.create_task(self._serve_ports(takeover, request, forwarded))
        serving.add_done_callback(self.tasks.discard)
        self.tasks.add(serving)
        return serving

    async def _serve_ports(
        self, takeover: Takeover, request: IncomingRequest, forwarded: ForwardedRequest | None
    ) -> None:
        rest = await takeover.run(self.flow, request, forwarded)
        self._handed_back = takeover.session.unserved
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
