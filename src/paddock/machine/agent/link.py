"""One connection to an agent: concurrent requests over one socket, and the descriptors that come back.

It uses the event loop's readiness callbacks only: a request is written at once if the socket accepts it, and a reply
goes from the buffer to the waiting future, without tasks or streams in between.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from contextlib import suppress

from paddock import errors
from paddock.machine.agent.failures import AgentRefusal, LinkLost
from paddock.machine.agent.pending import IgnoredReply, PendingCall, PendingRequest, Result, SingleReply
from paddock.machine.agent.wire import (
    KNOWS_DETAILS,
    KNOWS_SHORTCUTS,
    KNOWS_WINDOWS,
    PASSES_DESCRIPTORS,
    VERSION,
    Frame,
    FrameSplitter,
    ProtocolError,
    Reader,
    ReplyKind,
    RequestKind,
    Writer,
)

_RECEIVE_BYTES = 64 * 1024
_DESCRIPTOR_ROOM = socket.CMSG_SPACE(4 * array.array("i").itemsize)
"""Larger than a frame may need, so that surplus descriptors are noticed. The kernel closes those beyond it."""
# Plain integers: combining the socket module's enum flags for every call costs more than some of the calls.
_RECEIVE = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_SEND = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_TRUNCATED = int(socket.MSG_CTRUNC)
_MAX_UNSENT = 8 << 20
_MAX_OPEN = 16_384
_MAX_NUMBER = (1 << 32) - 1
_MAX_BUILD = 256


class AgentLink:
    """Created by :meth:`open`. Ends when the agent closes it or violates the protocol, or by :meth:`close`; then all
    requests fail."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.details = False
        """Whether the agent supports the additions to the first protocol version."""
        self.shortcuts = False
        """Whether it can run simple commands without their shell."""
        self.windows = False
        """Whether it sends a follower only what it consumes, and blocks the process meanwhile."""
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._descriptors: deque[int] = deque()
        self._open: dict[int, PendingRequest] = {}
        self._last = 0
        self._unsent: deque[tuple[memoryview, PendingRequest | None]] = deque()
        self._unsent_bytes = 0
        self._ended: ProtocolError | LinkLost | None = None
        self._loop.add_reader(connection, self._read)

    @classmethod
    async def open(cls, connection: socket.socket, seconds: float, *, descriptors: bool = True) -> AgentLink:
        """Handshake over a connected unix socket, owned by the link from now on. ``descriptors``: whether it can pass
        them."""
        link = cls(connection)
        offered = KNOWS_DETAILS | KNOWS_SHORTCUTS | KNOWS_WINDOWS | (PASSES_DESCRIPTORS if descriptors else 0)
        try:
            payload = Writer().u32(VERSION).u32(offered)
            features = await link.call(
                RequestKind.HELLO, payload, PendingCall(ReplyKind.HELLO_OK, _read_hello), seconds
            )
            link.details = bool(features & KNOWS_DETAILS)
            link.shortcuts = bool(features & KNOWS_SHORTCUTS)
            link.windows = bool(features & KNOWS_WINDOWS)
        except AgentRefusal as refusal:
            link.close()
            raise ProtocolError(f"The sandbox's agent refuses this server: {refusal.message}") from None
        except BaseException:
            link.close()
            raise
        return link

    @property
    def alive(self) -> bool:
        return self._ended is None

    async def call(
        self, kind: RequestKind, payload: Writer, exchange: SingleReply[Result], seconds: float | None = None
    ) -> Result:
        self.begin(kind, payload, exchange)
        return await exchange.answer(seconds)

    def tell(self, kind: RequestKind, payload: Writer) -> None:
        """Send a request whose effect the end of the link would have too. Never raises: a caller may be cleaning up."""
        with suppress(errors.ProviderUnavailable):
            self.begin(kind, payload, IgnoredReply())

    def begin(self, kind: RequestKind, payload: Writer, exchange: PendingRequest) -> None:
        """Send a request; its replies go to ``exchange``. Raises if it cannot have been sent."""
        if self._ended is not None:
            raise self._loss(sent=False)
        if len(self._open) >= _MAX_OPEN:
            raise errors.ProviderUnavailable("The sandbox's agent leaves too many requests unanswered.")
        number = self._next_number()
        frame = payload.frame(kind, number)
        self._send(frame, exchange)
        exchange.number, exchange.link = number, self
        self._open[number] = exchange

    def cancel(self, exchange: PendingRequest) -> None:
        """Tell the agent to end this request. It stays open, and its replies are dropped, until the agent confirms."""
        if self.alive and exchange.link is self:
            with suppress(LinkLost):
                self._send(Writer().u32(exchange.number).frame(RequestKind.CANCEL, self._next_number()), None)

    def widen(self, exchange: PendingRequest, size: int) -> None:
        """Report that ``size`` bytes of a follower's window were consumed."""
        if self.alive and exchange.link is self:
            with suppress(LinkLost):
                payload = Writer().u32(exchange.number).u32(size)
                self._send(payload.frame(RequestKind.WINDOW, self._next_number()), None)

    def close(self) -> None:
        self._end(LinkLost("The connection to the sandbox's agent was closed."))

    # Sending

    def _send(self, frame: bytes, exchange: PendingRequest | None) -> None:
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(frame, _SEND)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._end(LinkLost(f"The sandbox's agent cannot be reached: {error.strerror}."))
                raise self._loss(sent=False) from None
        if sent == len(frame):
            if exchange is not None:
                exchange.sent = True
            return
        if exchange is not None and not sent and self._unsent_bytes + len(frame) > _MAX_UNSENT:
            raise errors.ProviderUnavailable("The sandbox's agent does not read what it is asked.")
        if not self._unsent:
            self._loop.add_writer(self._socket, self._flush)
        self._unsent.append((memoryview(frame)[sent:], exchange))
        self._unsent_bytes += len(frame) - sent

    def _flush(self) -> None:
        while self._unsent:
            rest, exchange = self._unsent[0]
            try:
                sent = self._socket.send(rest, _SEND)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(LinkLost(f"The sandbox's agent cannot be reached: {error.strerror}."))
                return
            self._unsent_bytes -= sent
            if sent < len(rest):
                self._unsent[0] = (rest[sent:], exchange)
                return
            self._unsent.popleft()
            if exchange is not None:
                exchange.sent = True
        self._loop.remove_writer(self._socket)

    def _next_number(self) -> int:
        while True:
            self._last = self._last % _MAX_NUMBER + 1
            if self._last not in self._open:
                return self._last

    # Receiving

    def _read(self) -> None:
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(_RECEIVE_BYTES, _DESCRIPTOR_ROOM, _RECEIVE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(LinkLost(f"The connection to the sandbox's agent broke: {error.strerror}."))
            return
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(_descriptors(content))
        try:
            if flags & _TRUNCATED:
                raise ProtocolError("Descriptors from the sandbox's agent did not arrive: too many, or too many open.")
            if not data:
                self._end(LinkLost("The sandbox's agent closed the connection."))
                return
            for frame in self._splitter.feed(data):
                self._dispatch(frame)
                if self._ended is not None:
                    return
            # A frame's descriptor comes with its first byte: unless a frame has begun, none can be pending.
            if len(self._descriptors) > (1 if self._splitter.inside_a_frame else 0):
                raise ProtocolError("The sandbox's agent sent descriptors that belong to nothing.")
        except ProtocolError as error:
            self._end(error)

    def _dispatch(self, frame: Frame) -> None:
        exchange = self._open.get(frame.number)
        if exchange is None:
            raise ProtocolError("The sandbox's agent answered what it was not asked.")
        descriptor = None
        if frame.descriptors:
            if not self._descriptors or not exchange.takes_descriptor:
                raise ProtocolError("The sandbox's agent announced a descriptor that it may not send, or did not.")
            descriptor = self._descriptors.popleft()
        if exchange.receive(frame.kind, Reader(frame.payload), descriptor):
            self._open.pop(frame.number, None)
            exchange.link = None

    # End

    def _end(self, error: ProtocolError | LinkLost) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._loop.remove_reader(self._socket)
        if self._unsent:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        exchanges = list(self._open.values())
        self._open.clear()
        self._unsent.clear()
        for exchange in exchanges:
            exchange.link = None
            exchange.fail(self._loss(sent=exchange.sent))

    def _loss(self, *, sent: bool) -> ProtocolError | LinkLost:
        """A new exception per request: a raised one accumulates tracebacks."""
        if isinstance(self._ended, ProtocolError):
            return ProtocolError(self._ended.message)
        return LinkLost(str(self._ended), sent=sent)


def _descriptors(content: bytes) -> array.array[int]:
    found = array.array("i")
    found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return found


def _read_hello(body: Reader) -> int:
    """The agent's feature flags."""
    version, features, _ = body.u32(), body.u32(), body.text(_MAX_BUILD)
    if version != VERSION:
        raise ProtocolError(f"The sandbox's agent speaks version {version} of the protocol, this server {VERSION}.")
    if not features & PASSES_DESCRIPTORS:
        raise ProtocolError("The sandbox's agent cannot pass descriptors.")
    return features
