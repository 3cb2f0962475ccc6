"""How many bytes a second the sandboxes of one user may send to and receive from the outside, all together.

A connection waits for its turn before it moves bytes, and what was moved is charged: the rate holds over time whatever
the number of connections and sandboxes, and nothing is lost or refused.
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
"""Bytes a second of a user; 0 means no limit."""

MEGABIT_BYTES = 125_000
_RATE_SECONDS = 5.0
"""How long a rate is taken for granted."""
_BURST_SECONDS = 1.0
"""What was not used may be caught up on for so long."""
_PIECE_SECONDS = 0.1
_LEAST_PIECE, _MOST_PIECE = 4 << 10, 2 << 20
_LONGEST_NAP_SECONDS = 1.0
_BYTES_ACKED_AND_RECEIVED = struct.Struct("=QQ")
_OFFSET_IN_TCP_INFO = 120

log = structlog.get_logger(__name__)


class Bandwidth:
    """Of one user on this server. It belongs to one event loop."""

    def __init__(self, user_id: str = "", user_rate: UserRate | None = None) -> None:
        self.user_id = user_id
        self._user_rate = user_rate
        self._rate = 0.0
        self._rate_until = 0.0 if user_rate else float("inf")
        self._debt = 0.0
        """Bytes that were moved and are not paid for by time yet; below zero: what may still be caught up on."""
        self._debt_at = time.monotonic()
        self._turn = asyncio.Lock()

    @property
    def megabits(self) -> float:
        return self._rate / MEGABIT_BYTES

    def charge(self, count: int) -> None:
        self._settle()
        self._debt += count

    async def ready(self) -> int:
        """Wait for one's turn; answers how many bytes may be moved then."""
        if time.monotonic() >= self._rate_until:
            await self._look_up()
        if not self._rate:
            return _MOST_PIECE
        async with self._turn:  # first come, first served
            while self._rate and self._settle() > 0:
                await asyncio.sleep(min(self._debt / self._rate, _LONGEST_NAP_SECONDS))
                if time.monotonic() >= self._rate_until:
                    await self._look_up()
        return min(_MOST_PIECE, max(_LEAST_PIECE, int(self._rate * _PIECE_SECONDS)))

    def _settle(self) -> float:
        now = time.monotonic()
        least = -self._rate * _BURST_SECONDS
        self._debt = max(least, self._debt - self._rate * (now - self._debt_at)) if self._rate else 0.0
        self._debt_at = now
        return self._debt

    async def _look_up(self) -> None:
        if self._user_rate is None:
            return
        self._rate_until = time.monotonic() + _RATE_SECONDS
        try:
            rate = await self._user_rate(self.user_id)
        except PaddockError as problem:  # what was known holds
            log.warning("the bandwidth of a user is not known", user_id=self.user_id, problem=problem.message)
            return
        if rate != self._rate:
            self._settle()
            self._rate = rate


class Bandwidths:
    """Of all users of this server."""

    def __init__(self, user_rate: UserRate | None = None) -> None:
        self._user_rate = user_rate
        self._users: dict[str, Bandwidth] = {}

    def of(self, user_id: str) -> Bandwidth:
        if user_id not in self._users:
            self._users[user_id] = Bandwidth(user_id, self._user_rate)
        return self._users[user_id]


def bytes_acked_and_received(sock: socket.socket) -> tuple[int, int]:
    """As the kernel counted them: also what arrived and was never read."""
    size = _OFFSET_IN_TCP_INFO + _BYTES_ACKED_AND_RECEIVED.size
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:  # closed, or no TCP
        return 0, 0
    if len(info) < size:
        return 0, 0
    acked, received = _BYTES_ACKED_AND_RECEIVED.unpack_from(info, _OFFSET_IN_TCP_INFO)
    return acked, received
