"""A stream socket on the event loop, without asyncio transports: bytes are copied between sockets through one buffer.

Reading and writing a chunk happen in one step, so one buffer per thread serves all connections, an idle connection
holds no memory, and a slow reader blocks only its own sender.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

from paddock import errors
from paddock.http1.limits import LINGER_BYTES, LINGER_SECONDS
from paddock.loop_turns import begin_turn, give_turn

CHUNK = 2 << 20
"""Maximum bytes per move, if the receiver accepts them as fast as they come."""
_INITIAL_ROOM_BYTES, _MIN_ROOM_BYTES = 256 << 10, 64 << 10
_MAX_BUFFERED_BYTES = 64 << 20
"""While more than this is buffered for slow readers, each connection reads only the minimum at once."""
_HEAD_END = b"\r\n\r\n"
_FILL_BYTES = 16_384
_MAX_MOVES = 4
"""Moves of one connection before it yields to others; fewer if they are large."""
_MAX_MOVED_BYTES = 2 << 20
# Passed with every call: the sandbox's agent may hold the same socket and can change whether it blocks.
_NO_WAIT = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

_DISCONNECT_POLL_S = 15.0
# A peer whose machine is gone is detected after about two minutes.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))

Moved = Callable[[int], None]
Transform = Callable[[memoryview], tuple[int, bytes | memoryview]]
"""How many of the bytes read are taken, and what is sent for them. The others stay in ``ahead`` for the next read."""

_buffers = threading.local()


def _everything(data: memoryview) -> tuple[int, memoryview]:
    return len(data), data


class StreamSocket:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.ahead = bytearray()
        """Bytes read ahead, not yet consumed."""
        self.failed = False
        """Whether an operation on this socket has failed, as opposed to its peer in a relay."""
        self.ready: Callable[[], Awaitable[int]] | None = None
        """Awaited before anything is moved: applies the bandwidth limit, and returns how many bytes may be moved."""
        self._loop = asyncio.get_running_loop()
        self._moves = 0
        self._moved = 0
        self._room = _INITIAL_ROOM_BYTES
        """Bytes that the kernel is expected to accept at once. What it does not accept is buffered, so a slow reader is
        given little at a time, and a fast one much."""

    async def move(self, sink: StreamSocket, limit: int = CHUNK, transform: Transform = _everything) -> int:
        """Move at least one byte and at most ``limit`` to ``sink``; 0 at the end of the stream."""
        self._moves += 1
        if self._moves >= _MAX_MOVES or self._moved >= _MAX_MOVED_BYTES:
            self._moves = self._moved = 0
            await asyncio.sleep(0)
            begin_turn()
        if self.ready is not None:
            limit = min(limit, await self.ready())
        if self.ahead:
            count, data = transform(memoryview(bytes(self.ahead[:limit])))
            del self.ahead[:count]
            await sink.send(data)
            return count
        view = _buffer()
        room = sink._room if _held() < _MAX_BUFFERED_BYTES else _MIN_ROOM_BYTES
        read = await self._receive_into(view, min(limit, room))
        count, data = transform(view[:read]) if read else (0, b"")
        self._moved += count
        if count < read:
            self.ahead += view[count:read]
        if data:
            # No await between the read and this write: another connection would overwrite the buffer.
            sent = sink.send_now(data)
            if sent < len(data):
                sink._room = max(_MIN_ROOM_BYTES, sent)
                await sink.send_later(bytes(data[sent:]))
            elif count == sink._room:
                sink._room = min(2 * count, CHUNK)
        return count

    async def fill(self, limit: int = _FILL_BYTES) -> bool:
        """Read more into ``ahead``. False at the end of the stream."""
        view = _buffer()
        count = await self._receive_into(view, min(limit, CHUNK))
        self.ahead += view[:count]
        return count > 0

    async def head(self, limit: int) -> bytes | None:
        """Read up to and including the empty line; None if the stream ends before its first byte."""
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

    async def send(self, data: bytes | memoryview) -> None:
        await give_turn()
        view = memoryview(data)
        while view:
            sent = self.send_now(view)
            view = view[sent:]
            if view:
                await self._writable()

    async def send_later(self, data: bytes) -> None:
        """Send what the kernel did not accept at once. Counted, so that with many slow readers each gets less at a
        time."""
        _buffers.held = _held() + len(data)
        try:
            await self.send(data)
        finally:
            _buffers.held -= len(data)

    def send_now(self, data: bytes | memoryview) -> int:
        """Send as much as the kernel accepts at once."""
        try:
            return self.sock.send(data, _NO_WAIT)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.failed = True
            raise

    def end(self) -> None:
        """Half-close. The peer may have closed already, which is fine."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.failed = True

    def is_quiet(self) -> bool:
        """Whether the peer has neither sent anything nor closed: a kept-alive connection is still usable."""
        if self.ahead:
            return False
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            self.failed = True
        return False

    async def at_end(self) -> bool:
        """Wait until there is something to read; whether that is the end of the stream. Nothing is consumed."""
        if self.ahead:
            return False
        await self.readable()
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    async def disconnected(self) -> None:
        """Wait until a peer whose stream has ended cannot read either.

        The end of its stream is always readable, so there is nothing to wait on: the kernel learns of it by its
        keep-alive probes, and is polled.
        """
        poll = select.poll()
        poll.register(self.sock, 0)  # errors and hang-ups are always reported
        while not poll.poll(0):  # noqa: ASYNC110 (only the kernel knows)
            await asyncio.sleep(_DISCONNECT_POLL_S)
        self.failed = True

    async def linger(self) -> None:
        """Wait until the peer has read the last bytes: closing with unread input would reset the connection and discard
        them."""
        self.end()
        unread = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_SECONDS):
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
        """Close with a reset, so that the peer knows that the connection did not end in order."""
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
        """Wait until there is something to read, or the end."""
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


async def tunnel(
    client: StreamSocket, server: StreamSocket, sent: Moved, received: Moved, half_closed_seconds: float | None = None
) -> None:
    """Bytes both ways until each side has ended: one that has sent everything may still receive.

    ``half_closed_seconds``: for the client to finish after the server has. Raises OSError where one was cut off.
    """
    inward = asyncio.create_task(_pump(client, server, sent))
    outward = asyncio.create_task(_pump(server, client, received))
    leaving = None
    try:
        done, _ = await asyncio.wait((inward, outward), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not outward.done():
            leaving = asyncio.create_task(client.disconnected())
            await asyncio.wait((outward, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not outward.done():
                raise ConnectionAbortedError("The client is gone.")
            outward.result()
        elif not inward.done():
            await asyncio.wait((inward,), timeout=half_closed_seconds)
            if inward.done():
                inward.result()
    finally:
        tasks = [task for task in (inward, outward, leaving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: StreamSocket, sink: StreamSocket, moved: Moved) -> None:
    while count := await source.move(sink):
        moved(count)
    sink.end()


def probe_peer(sock: socket.socket) -> None:
    """Have the kernel ask now and then whether the other machine is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _held() -> int:
    """Bytes buffered for slow readers, on all connections of this thread's loop."""
    held: int = getattr(_buffers, "held", 0)
    return held


def _buffer() -> memoryview:
    if not hasattr(_buffers, "view"):
        _buffers.view = memoryview(bytearray(CHUNK))
    view: memoryview = _buffers.view
    return view
