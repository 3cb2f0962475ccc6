"""Limits the bytes per second that one user's sandboxes exchange with the outside, all together.

A connection waits until it may move bytes, and is charged for what it moved: the rate holds on average for any number
of connections and sandboxes, and no data is dropped or refused.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable

import structlog

from paddock.errors import PaddockError

UserRate = Callable[[str], Awaitable[float]]
"""Bytes per second of a user; 0 means no limit."""

MEGABIT_BYTES = 125_000
_RATE_TTL_S = 5.0
"""How long a rate is cached."""
_BURST_SECONDS = 1.0
"""How much unused time may be caught up on."""
_CHUNK_S = 0.1
_MIN_CHUNK_BYTES, _MAX_CHUNK_BYTES = 4 << 10, 2 << 20
_MAX_SLEEP_S = 1.0
_BYTES_ACKED_AND_RECEIVED = struct.Struct("=QQ")
_OFFSET_IN_TCP_INFO = 120

log = structlog.get_logger(__name__)


class Bandwidth:
    """The bandwidth of one user on this server. Belongs to one event loop."""

    def __init__(self, user_id: str = "", user_rate: UserRate | None = None) -> None:
        self.user_id = user_id
        self._user_rate = user_rate
        self._rate = 0.0
        self._rate_until = 0.0 if user_rate else float("inf")
        self._debt = 0.0
        """Bytes moved ahead of the rate; below zero: allowance for a burst."""
        self._debt_at = time.monotonic()
        self._turn = asyncio.Lock()

    @property
    def megabits(self) -> float:
        return self._rate / MEGABIT_BYTES

    def charge(self, count: int) -> None:
        self._settle()
        self._debt += count

    async def ready(self) -> int:
        """Wait until bytes may be moved; returns how many."""
        if time.monotonic() >= self._rate_until:
            await self._look_up()
        if not self._rate:
            return _MAX_CHUNK_BYTES
        async with self._turn:  # first come, first served
            while self._rate and self._settle() > 0:
                await asyncio.sleep(min(self._debt / self._rate, _MAX_SLEEP_S))
                if time.monotonic() >= self._rate_until:
                    await self._look_up()
        return min(_MAX_CHUNK_BYTES, max(_MIN_CHUNK_BYTES, int(self._rate * _CHUNK_S)))

    def _settle(self) -> float:
        now = time.monotonic()
        least = -self._rate * _BURST_SECONDS
        self._debt = max(least, self._debt - self._rate * (now - self._debt_at)) if self._rate else 0.0
        self._debt_at = now
        return self._debt

    async def _look_up(self) -> None:
        if self._user_rate is None:
            return
        self._rate_until = time.monotonic() + _RATE_TTL_S
        try:
            rate = await self._user_rate(self.user_id)
        except PaddockError as problem:  # keep the known rate
            log.warning("the bandwidth of a user is not known", user_id=self.user_id, problem=problem.message)
            return
        if rate != self._rate:
            self._settle()
            self._rate = rate


class Bandwidths:
    """The bandwidth limits of all users of this server."""

    def __init__(self, user_rate: UserRate | None = None) -> None:
        self._user_rate = user_rate
        self._users: dict[str, Bandwidth] = {}

    def of(self, user_id: str) -> Bandwidth:
        if user_id not in self._users:
            self._users[user_id] = Bandwidth(user_id, self._user_rate)
        return self._users[user_id]


def bytes_acked_and_received(sock: socket.socket) -> tuple[int, int]:
    """As counted by the kernel, including bytes that arrived and were never read."""
    size = _OFFSET_IN_TCP_INFO + _BYTES_ACKED_AND_RECEIVED.size
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:  # closed, or not TCP
        return 0, 0
    if len(info) < size:
        return 0, 0
    acked, received = _BYTES_ACKED_AND_RECEIVED.unpack_from(info, _OFFSET_IN_TCP_INFO)
    return acked, received
