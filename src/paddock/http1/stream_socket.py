"""A stream socket of one event loop, without transports: bytes go from kernel to kernel through one buffer.

A read and the write of what was read happen in one step, so one buffer per thread serves every connection, an idle
connection holds no memory, and a slow reader holds up its writer and nobody else.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

from paddock import errors
from paddock.loop_turns import begin_turn, give_turn

CHUNK = 2 << 20
"""The most that is moved at once, to whoever takes it as fast as it comes."""
_FIRST_ROOM, _LEAST_ROOM = 256 << 10, 64 << 10
_MOST_HELD = 64 << 20
"""While more waits for slow readers, each connection reads no more at once than the least."""
_HEAD_END = b"\r\n\r\n"
_AHEAD = 16_384
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 2.0
_TURN = 4
"""Moves of one connection before the others get their turn; fewer where they are large."""
_TURN_BYTES = 2 << 20
# Said with every call: whether a socket blocks is a property that a sandbox's agent, which may hold it too, can change.
_NOW = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

Measure = Callable[[memoryview], int]

_buffers = threading.local()


class StreamSocket:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.ahead = bytearray()
        """What was read before it was known whose it is."""
        self.failed = False
        """Whether an operation on this socket has failed, as against one on its partner."""
        self.ready: Callable[[], Awaitable[int]] | None = None
        """Asked before anything is moved: waits where there is a limit, and answers how many bytes may go."""
        self._loop = asyncio.get_running_loop()
        self._moves = 0
        self._moved = 0
        self._room = _FIRST_ROOM
        """What the kernel may be expected to take at once. What it does not take is held in memory, so a slow reader is
        given little at a time, and a quick one much."""

    async def move(self, sink: StreamSocket, limit: int = CHUNK, measure: Measure = len) -> int:
        """Move at least one byte and at most ``limit`` to ``sink``; 0 at the end of the stream.

        ``measure`` says how many of the bytes that were read shall go; the others are kept for whoever reads next.
        """
        self._moves += 1
        if self._moves >= _TURN or self._moved >= _TURN_BYTES:
            self._moves = self._moved = 0
            await asyncio.sleep(0)
            begin_turn()
        if self.ready is not None:
            limit = min(limit, await self.ready())
        if self.ahead:
            data = bytes(self.ahead[:limit])
            count = measure(memoryview(data))
            del self.ahead[:count]
            await sink.send(data[:count])
            return count
        view = _buffer()
        room = sink._room if _held() < _MOST_HELD else _LEAST_ROOM
        read = await self._receive_into(view, min(limit, room))
        count = measure(view[:read]) if read else 0
        self._moved += count
        if count < read:
            self.ahead += view[count:read]
        if count:
            # No await between the read and this write, or another connection would overwrite the buffer.
            sent = sink.send_now(view[:count])
            if sent < count:
                sink._room = max(_LEAST_ROOM, sent)
                await sink.send_later(bytes(view[sent:count]))
            elif count == sink._room:
                sink._room = min(2 * count, CHUNK)
        return count

    async def fill(self, limit: int = _AHEAD) -> bool:
        """Read more ahead. False at the end of the stream."""
        view = _buffer()
        count = await self._receive_into(view, min(limit, CHUNK))
        self.ahead += view[:count]
        return count > 0

    async def head(self, limit: int) -> bytes | None:
        """Up to and with the empty line; None if the stream ends before its first byte."""
        await give_turn()
        searched = 0
        while (at := self.ahead.find(_HEAD_END, searched)) < 0:
            searched = max(0, len(self.ahead) - 3)
            if len(self.ahead) >= limit:
                raise errors.MalformedRequest(f"The head is longer than {limit} bytes.")
            if not await self.fill():
                if self.ahead:
                    raise errors.MalformedRequest("The connection ended within a head.")
                return None
        end = at + len(_HEAD_END)
        if end > limit:
            raise errors.MalformedRequest(f"The head is longer than {limit} bytes.")
        head = bytes(self.ahead[:end])
        del self.ahead[:end]
        return head

    async def line(self, limit: int) -> bytes:
        """Up to a CRLF, which is taken off."""
        await give_turn()
        while (at := self.ahead.find(b"\r\n")) < 0:
            if len(self.ahead) > limit:
                raise errors.MalformedRequest("A line of the body's framing is too long.")
            if not await self.fill():
                raise errors.MalformedRequest("The connection ended within a body.")
        line = bytes(self.ahead[:at])
        del self.ahead[: at + 2]
        return line

    async def send(self, data: bytes) -> None:
        await give_turn()
        view = memoryview(data)
        while view:
            sent = self.send_now(view)
            view = view[sent:]
            if view:
                await self._writable()

    async def send_later(self, data: bytes) -> None:
        """What the kernel did not take at once. Counted: many slow readers are given less at a time."""
        _buffers.held = _held() + len(data)
        try:
            await self.send(data)
        finally:
            _buffers.held -= len(data)

    def send_now(self, data: memoryview) -> int:
        """As much as the kernel takes at once."""
        try:
            return self.sock.send(data, _NOW)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.failed = True
            raise

    def end(self) -> None:
        """No more will be sent. The other side may have gone already, which is as good."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.failed = True

    def is_quiet(self) -> bool:
        """Whether the other side has neither sent anything nor ended: a kept connection that is still good."""
        if self.ahead:
            return False
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            self.failed = True
        return False

    async def linger(self) -> None:
        """Let the other side read our last words: closing with unread bytes would reset, and take them away."""
        self.end()
        unread = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while unread > 0:
                    self.ahead.clear()
                    if not await self.fill(CHUNK):
                        return
                    unread -= len(self.ahead)
        except (TimeoutError, OSError):
            return

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close so that the other side knows that this was no orderly end."""
        if self.sock.fileno() >= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()

    async def _receive_into(self, view: memoryview, limit: int) -> int:
        await give_turn()
        while True:
            try:
                return self.sock.recv_into(view, limit, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                await self.readable()
            except OSError:
                self.failed = True
                raise

    async def readable(self) -> None:
        """Wait until there is something to read, were it only the end."""
        ready = self._loop.create_future()
        self._loop.add_reader(self.sock, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self.sock)
            begin_turn()

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_writer(self.sock, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(self.sock)
            begin_turn()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _held() -> int:
    """Bytes that wait for slow readers, on all connections of this thread's loop."""
    held: int = getattr(_buffers, "held", 0)
    return held


def _buffer() -> memoryview:
    if not hasattr(_buffers, "view"):
        _buffers.view = memoryview(bytearray(CHUNK))
    view: memoryview = _buffers.view
    return view
