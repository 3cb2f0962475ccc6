"""Connections on which nothing moves although something should: an answer that is not read."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios

_LOOKS = 4
"""In the time that is given: so a connection goes at the latest a quarter of it late."""


class StallTimer:
    """Aborts the connection when none of what waits to be sent has gone out for ``seconds``.

    Progress is what the other side has acknowledged: our own buffer shrinks in leaps, when the kernel's has emptied by
    a third.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0
        self._moved_at = 0.0

    def start(self) -> None:
        if self._timer is None:
            self._left, self._moved_at = self._unsent(), self._loop.time()
            self._timer = self._loop.call_later(self._seconds / _LOOKS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left, now = self._unsent(), self._loop.time()
        if left != self._left:
            self._left, self._moved_at = left, now
        elif now - self._moved_at >= self._seconds:
            self._timer = None
            self._reset()
            return
        self._timer = self._loop.call_later(self._seconds / _LOOKS, self._look)

    def _reset(self) -> None:
        """What the kernel still holds for the other side goes too; it would wait for it on and on."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            with socket.socket(fileno=os.dup(sock.fileno())) as ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _unsent(self) -> int:
        """Bytes in our buffer and in the kernel's that the other side has not acknowledged."""
        sock = self._transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return 0
        queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        return int(self._transport.get_write_buffer_size()) + int(struct.unpack("i", queued)[0])
