"""Multiplexes connections to an agent over one pair of byte streams, whatever transports those: the outer end.

Each connection is presented as one end of a socket pair. It has a flow-control window in each direction, so a
connection that is not read does not block the others. If the streams are cut all connections end; callers then make a
new multiplexer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol

from paddock import errors
from paddock.loop_turns import give_turn
from paddock.machine.agent.wire import ProtocolError

VERSION = 1
WINDOW = 1 << 18
PIECE = 1 << 15
CHANNELS = 512
_HEAD = struct.Struct("<HBBI")
_NUMBER = struct.Struct("<I")
_PING_SECONDS = 15.0
_HELLO_SECONDS = 30.0


class ChannelKind(IntEnum):
    HELLO = 1
    OPEN = 2
    DATA = 3
    END = 4
    CLOSE = 5
    WINDOW = 6
    PING = 7


class BytePipe(Protocol):
    """The two byte streams. Reads return chunks of any size."""

    async def read(self) -> bytes:
        """Empty at the end, for any reason."""

    async def write(self, data: bytes) -> None:
        """Returns when more may be written; raises an :class:`OSError` if nothing can be written any more."""

    async def close(self) -> None: ...


class Multiplexer:
    """Usable after ``start``, as long as it is ``alive``."""

    def __init__(self, pipe: BytePipe) -> None:
        self._pipe = pipe
        self._unread = bytearray()
        self._channels: dict[int, _Channel] = {}
        self._leaving: set[int] = set()
        self._free = list(range(CHANNELS - 1, -1, -1))
        self._turn_to_write = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.alive = False

    async def start(self) -> None:
        """Raises if no inner end answers."""
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                number, kind, body = await self._frame()
        except (EOFError, TimeoutError):
            await self._pipe.close()
            raise errors.ProviderUnavailable("The multiplexer inside the sandbox did not answer.") from None
        except BaseException:
            await asyncio.shield(self._pipe.close())
            raise
        if (number, kind, body) != (0, ChannelKind.HELLO, _NUMBER.pack(VERSION)):
            await self._pipe.close()
            raise ProtocolError("The multiplexer inside the sandbox began with an invalid greeting.")
        self.alive = True
        self.run(self._read())
        self.run(self._ping())

    async def connect(self) -> socket.socket:
        """A new connection, which the caller closes. If it is refused inside, it is closed at once."""
        if not self.alive:
            raise errors.ProviderUnavailable("The connection to the sandbox's agent was cut.")
        if not self._free:
            raise errors.ProviderUnavailable(f"There are {CHANNELS} connections to this sandbox already.")
        number = self._free.pop()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        channel = self._channels[number] = _Channel(self, number, theirs)
        self.run(channel.run())
        return ours

    async def close(self) -> None:
        self._cut()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pipe.close()

    # Called by channels

    async def send(self, number: int, kind: ChannelKind, data: bytes = b"") -> None:
        async with self._turn_to_write:
            if not self.alive:
                raise errors.ProviderUnavailable("The connection to the sandbox's agent was cut.")
            try:
                await self._pipe.write(_HEAD.pack(number, kind, 0, len(data)) + data)
            except OSError as error:
                self._cut()
                raise errors.ProviderUnavailable(f"The connection to the sandbox's agent was cut: {error}") from error

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def left(self, number: int) -> None:
        """The channel is closed here; its number is free once the other end has closed it, too."""
        if self._channels.pop(number, None) is not None:
            self._leaving.add(number)

    # From the other end

    async def _read(self) -> None:
        try:
            while True:
                self._take(*await self._frame())
        except (EOFError, ProtocolError):
            self._cut()
        finally:
            await asyncio.shield(self._pipe.close())

    async def _ping(self) -> None:
        with suppress(errors.ProviderUnavailable):
            while True:
                await asyncio.sleep(_PING_SECONDS)
                await self.send(0, ChannelKind.PING)

    async def _frame(self) -> tuple[int, int, bytes]:
        await give_turn()
        head = await self._exactly(_HEAD.size)
        number, kind, zero, length = _HEAD.unpack(head)
        if zero or length > PIECE or number >= CHANNELS:
            raise ProtocolError("The multiplexer inside the sandbox sent an invalid frame.")
        return number, kind, await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        while len(self._unread) < count:
            data = await self._pipe.read()
            if not data:
                raise EOFError
            self._unread += data
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _take(self, number: int, kind: int, body: bytes) -> None:
        channel = self._channels.get(number)
        if kind == ChannelKind.CLOSE and not body:
            self._closed(number, channel)
        elif channel is not None:
            channel.take(kind, body)
        elif number not in self._leaving:
            raise ProtocolError("The multiplexer inside the sandbox sent a frame of an unknown connection.")

    def _closed(self, number: int, channel: _Channel | None) -> None:
        if channel is not None:
            self._channels.pop(number)
            channel.closed_inside()
        elif number in self._leaving:
            self._leaving.remove(number)
            self._free.append(number)
        else:
            raise ProtocolError("The multiplexer inside the sandbox closed an unknown connection.")

    def freed(self, number: int) -> None:
        """The channel was closed by the other end first, and now here."""
        self._free.append(number)

    def _cut(self) -> None:
        self.alive = False
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.cut()


class _Channel:
    """Relays bytes between a channel number and a local socket."""

    def __init__(self, multiplexer: Multiplexer, number: int, end: socket.socket) -> None:
        self._multiplexer = multiplexer
        self._number = number
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._credit = self._allowed = WINDOW
        self._news = asyncio.Event()
        """Set when there is more credit, or more data to deliver."""
        self._room = asyncio.Event()
        self._held = bytearray()
        self._ended = False
        self._over = asyncio.Event()

    def take(self, kind: int, body: bytes) -> None:
        if kind == ChannelKind.DATA and body and not self._ended and len(body) <= self._allowed:
            self._allowed -= len(body)
            self._held += body
            self._news.set()
        elif kind == ChannelKind.END and not body and not self._ended:
            self._ended = True
            self._news.set()
        elif kind == ChannelKind.WINDOW and len(body) == _NUMBER.size and self._credit + _number(body) <= WINDOW:
            self._credit += _number(body)
            self._room.set()
        else:
            raise ProtocolError("The multiplexer inside the sandbox violated the flow control of a connection.")

    def closed_inside(self) -> None:
        """Data received before is still delivered."""
        self._ended = True
        for event in (self._over, self._news, self._room):
            event.set()

    def cut(self) -> None:
        self._held.clear()
        self.closed_inside()
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    async def run(self) -> None:
        work = [asyncio.create_task(one) for one in (self._inward(), self._outward())]
        over = asyncio.create_task(self._over.wait())
        left, (_, outward) = set(work), work
        try:
            while left and not self._over.is_set():
                done, _ = await asyncio.wait({*left, over}, return_when=asyncio.FIRST_COMPLETED)
                # A broken direction ends both; one that ended in order lets the other finish.
                if not all(task.result() for task in done):
                    return
                left -= done
            await asyncio.wait([outward])
        finally:
            for task in (*work, over):
                task.cancel()
            await asyncio.gather(*work, over, return_exceptions=True)
            self._end.close()
            await asyncio.shield(self._leave())

    async def _leave(self) -> None:
        by_the_other = self._over.is_set()
        self._multiplexer.left(self._number)
        with suppress(errors.ProviderUnavailable):
            await self._multiplexer.send(self._number, ChannelKind.CLOSE)
            if by_the_other:
                self._multiplexer.freed(self._number)

    async def _inward(self) -> bool:
        with suppress(OSError, errors.ProviderUnavailable):
            await self._multiplexer.send(self._number, ChannelKind.OPEN)
            while not self._over.is_set():
                if not self._credit:
                    self._room.clear()
                    await self._room.wait()
                    continue
                data = await self._loop.sock_recv(self._end, min(PIECE, self._credit))
                if not data:
                    await self._multiplexer.send(self._number, ChannelKind.END)
                    return True
                self._credit -= len(data)
                await self._multiplexer.send(self._number, ChannelKind.DATA, data)
        return False

    async def _outward(self) -> bool:
        used = 0
        with suppress(OSError, errors.ProviderUnavailable):
            while True:
                while self._held:
                    data, self._held = self._held, bytearray()
                    await self._loop.sock_sendall(self._end, data)
                    used += len(data)
                    if used >= WINDOW // 4 and not self._ended:
                        self._allowed += used
                        given, used = used, 0
                        await self._multiplexer.send(self._number, ChannelKind.WINDOW, _NUMBER.pack(given))
                if self._ended:
                    self._end.shutdown(socket.SHUT_WR)
                    return True
                self._news.clear()
                await self._news.wait()
        return False


def _number(body: bytes) -> int:
    return int(_NUMBER.unpack(body)[0])
