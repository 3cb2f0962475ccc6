"""How many connections the server holds, and which it closes to make room for another.

A connection that has sent nothing costs a descriptor and does not show who it is. So every new connection is accepted,
and the oldest silent one is closed: a client that sends its request at once always gets its turn, however many do not.
Next are those that have sent part of a head; those that had requests before and never showed a key; those whose request
has shown none for a while, however slowly it moves (a body sent byte by byte, a response that is not read); those with
a key that are between two requests; and last the requests that have shown no key yet. An admitted connection is never
closed while it is at work; where only such are left, the new one gets 503.

Descriptors are the limit behind it all: see :mod:`paddock.descriptors`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network

from paddock import errors
from paddock.descriptors import descriptor_limit, for_connections

MAX_CONNECTIONS = 16_384
"""At most, however many descriptors there are: each costs memory, too."""
MAX_CONNECTIONS_PER_ADDRESS = 512
"""Where the operator sets no number; an office has one address. Of fewer places one address has a quarter at most, half
of what those without a key have together."""
ASKING_SECONDS = 10.0
"""For a request to show a key, or to be answered without one, before its connection may be closed to make room."""
_MAX_CHECKED = 16
_HOST_BITS = 64
_DESCRIPTORS_PER_CONNECTION = 3
"""One to a port of a sandbox: the client's, our duplicate of it, and the one into the sandbox."""
_ABORT_FACTOR = 1.5
_STALL_CHECKS = 4
"""Checks within the allowed time: a connection is closed at most a quarter of it late."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    in_all: int
    unproven: int
    """Of those, the ones that have shown no key and were not admitted to a public port."""
    per_address: int
    descriptors: int
    """Numbers from here on are not for connections."""

    @property
    def per_user(self) -> int:
        """At work at a time for one user, so that there are places left for the others."""
        return max(2, self.in_all // 2)

    @classmethod
    def derive(cls, in_all: int, per_address: int, descriptors: int | None = None) -> ConnectionLimits:
        """``in_all`` and ``per_address`` as the operator set them; 0: as the descriptors allow."""
        free = for_connections(descriptors or descriptor_limit())
        possible = max(8, free // _DESCRIPTORS_PER_CONNECTION)
        most = min(in_all or MAX_CONNECTIONS, possible)
        of_one_address = per_address or min(MAX_CONNECTIONS_PER_ADDRESS, max(2, most // 4))
        return cls(most, max(4, most // 2), of_one_address, free)


class TrackedConnection:
    """One connection that the server holds."""

    __slots__ = ("_connections", "among", "asked_at", "close", "ended", "has_data", "proven", "source", "user_id")

    def __init__(self, connections: Connections, source: str) -> None:
        self._connections = connections
        self.among: dict[TrackedConnection, None] | None = None
        """The connections of its kind that may be closed; None while it is at work."""
        self.asked_at = 0.0
        """When the current request began."""
        self.source = source
        self.ended = False
        self.user_id: str | None = None
        """For whom it is at work."""
        self.proven = False
        """It has shown a key, or a token that stands for one."""
        self.close: Callable[[], object] = _nothing
        """Closes it, when it is not at work."""
        self.has_data: Callable[[], bool] = _no
        """Whether there are unread bytes."""

    def prove(self) -> None:
        self.proven = True
        if self.among is self._connections.asking:
            self._move(None)

    def work_for(self, user_id: str, *, limited: bool) -> None:
        """A key of this user was shown, or a token for one of his sandboxes. Raises TooManyRequests where ``limited``
        and as many are at work for him as may be."""
        self.prove()
        working = self._connections.working
        if self.user_id is not None or self.ended:
            return
        most = self._connections.limits.per_user
        if limited and working[user_id] >= most:
            raise errors.TooManyRequests(
                f"{most} connections are at work for {user_id}, and no more may be. Wait until some are done.",
                details={"max_connections": most},
                retry_after=1,
            )
        self.user_id = user_id
        working[user_id] += 1

    def _rest(self) -> None:
        if self.user_id is not None:
            working = self._connections.working
            working[self.user_id] -= 1
            if not working[self.user_id]:
                del working[self.user_id]
            self.user_id = None

    def begin(self) -> None:
        """It has sent something."""
        self._move(self._connections.begun)

    def busy(self) -> None:
        """A request began. Until a key was shown, it is not at work."""
        self.asked_at = time.monotonic()
        self._move(None if self.proven else self._connections.asking)

    def admit(self) -> None:
        """The current request is at work although it has shown no key: it is for a public port."""
        self._move(None)

    def trust(self) -> None:
        """It is of another server, which forwards for many clients and counts them by their addresses."""
        self._connections.forget_address(self)

    def idle(self) -> None:
        """Between two requests."""
        self._rest()
        self._move(self._connections.idle_proven if self.proven else self._connections.idle)

    def _move(self, among: dict[TrackedConnection, None] | None) -> None:
        if self.among is not None:
            self.among.pop(self, None)
        self.among = None if self.ended else among
        if self.among is not None:
            self.among[self] = None

    def end(self) -> None:
        self._rest()
        self._move(None)
        if not self.ended:
            self.ended = True
            self._connections.forget(self)


class Connections:
    def __init__(self, limits: ConnectionLimits, proxies: Sequence[str] = ()) -> None:
        """``proxies``: networks of proxies in front of the server, which forward for many clients."""
        self.limits = limits
        self._proxies = [ip_network(network) for network in proxies]
        self._proxy_known: dict[str, bool] = {}
        self._all: set[TrackedConnection] = set()
        self._by_source: dict[str, dict[TrackedConnection, None]] = {}
        # Each oldest first.
        self.silent: dict[TrackedConnection, None] = {}
        self.begun: dict[TrackedConnection, None] = {}
        """Part of a first head has come."""
        self.idle: dict[TrackedConnection, None] = {}
        self.idle_proven: dict[TrackedConnection, None] = {}
        self.asking: dict[TrackedConnection, None] = {}
        """Current requests that have shown no key."""
        self._unproven = (self.silent, self.begun, self.idle)
        self._waiting = (*self._unproven, self.idle_proven)
        self.working: Counter[str] = Counter()
        """How many are at work for each user."""
        self.detach = 0
        """Connections that were closed to make room."""
        self.refused = 0

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, address: str, descriptor: int = 0) -> TrackedConnection | None:
        """The entry of a new connection; None where there is no room, and none that may be closed."""
        limits, source = self.limits, _source(address)
        if self._is_crowded(source) and not self.is_proxy(address) and not self._close_one_of(source):
            self.refused += 1
            return None
        if sum(map(len, self._unproven)) + len(self.asking) >= limits.unproven:
            self._close_oldest(*self._unproven, self._asking_for_long())
        if descriptor >= limits.descriptors:
            # The closed one frees its number a moment later: this one is of the server's own.
            self._close_oldest(*self._unproven, self._asking_for_long(), self.idle_proven)
            self.refused += 1
            return None
        kinds = (*self._unproven, self._asking_for_long(), self.idle_proven, self.asking)
        if len(self._all) >= limits.in_all and not self._close_oldest(*kinds):
            self.refused += 1
            return None
        return self._add(source)

    def forget(self, tracked: TrackedConnection) -> None:
        self._all.discard(tracked)
        self.forget_address(tracked)

    def forget_address(self, tracked: TrackedConnection) -> None:
        neighbours = self._by_source.get(tracked.source, {})
        neighbours.pop(tracked, None)
        if not neighbours:
            self._by_source.pop(tracked.source, None)

    def _add(self, source: str) -> TrackedConnection:
        tracked = TrackedConnection(self, source)
        self._all.add(tracked)
        self._by_source.setdefault(source, {})[tracked] = None
        tracked.among = self.silent
        self.silent[tracked] = None
        return tracked

    def _is_crowded(self, source: str) -> bool:
        return len(self._by_source.get(source, ())) >= self.limits.per_address

    def is_proxy(self, address: str) -> bool:
        known = self._proxy_known.get(address)
        if known is None:
            if len(self._proxy_known) > 10_000:
                self._proxy_known.clear()
            known = self._proxy_known[address] = _within(address, self._proxies)
        return known

    def _close_one_of(self, source: str) -> bool:
        mine = self._by_source.get(source, {})
        for waiting in (*self._waiting, self.asking):
            for tracked in mine:
                if tracked.among is waiting:
                    self._end(tracked)
                    return True
        return False

    def _close_oldest(self, *kinds: dict[TrackedConnection, None]) -> bool:
        """Close the oldest of the first kind that there is any of."""
        self._check_for_data()
        for waiting in kinds:
            if waiting:
                self._end(next(iter(waiting)))
                return True
        return False

    def _asking_for_long(self) -> dict[TrackedConnection, None]:
        """The oldest that asks, if it has done so for too long."""
        oldest = next(iter(self.asking), None)
        waits = oldest is not None and time.monotonic() - oldest.asked_at >= ASKING_SECONDS
        return self.asking if waits else {}

    def _check_for_data(self) -> None:
        """The oldest silent ones may have sent something that was not read yet."""
        for _ in range(_MAX_CHECKED):
            oldest = next(iter(self.silent), None)
            if oldest is None or not oldest.has_data():
                return
            oldest.begin()

    def _end(self, tracked: TrackedConnection) -> None:
        self.detach += 1
        tracked.end()
        tracked.close()


class StallTimer:
    """Aborts the connection when none of what waits to be sent has gone out for half as long again as ``seconds``.

    After ``seconds`` a process is no longer held up for a follower that does not read. It is aborted later, so that one
    that reads again then is told what it has missed.
    Progress is what the other side has acknowledged: our own buffer shrinks in steps, when a third of the kernel's is
    free.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = _ABORT_FACTOR * seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0
        self._moved_at = 0.0

    def start(self) -> None:
        if self._timer is None:
            self._left, self._moved_at = self._unsent(), self._loop.time()
            self._timer = self._loop.call_later(self._seconds / _STALL_CHECKS, self._look)

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
        self._timer = self._loop.call_later(self._seconds / _STALL_CHECKS, self._look)

    def _reset(self) -> None:
        """Also drop what the kernel has buffered for the other side, which would keep the connection."""
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


class StallAborting:
    """For a protocol, before its own class: aborts the connection of a peer that does not read."""

    _stall: StallTimer | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        if self._stall is not None:
            self._stall.start()

    def resume_writing(self) -> None:
        super().resume_writing()  # type: ignore[misc]
        if self._stall is not None:
            self._stall.stop()


def _source(address: str) -> str:
    """Under which connections from this address are counted. A public network of IPv6 is given out as a whole, 2^64
    addresses to one customer."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found) >> _HOST_BITS << _HOST_BITS, _HOST_BITS))) if found.is_global else address


def _within(address: str, networks: Sequence[object]) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # a unix socket has none
        return True
    mapped = getattr(found, "ipv4_mapped", None) or found
    return any(mapped in network for network in networks)  # type: ignore[operator]


def _no() -> bool:
    return False


def _nothing() -> None:
    """There is nothing to close yet."""
