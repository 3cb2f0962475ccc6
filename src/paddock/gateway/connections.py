"""How many connections the server holds, and which it lets go of to make room for another.

A connection that has asked for nothing costs a descriptor and says nothing about who it is. So whoever comes is let in,
and the oldest that is silent goes: a client that asks at once always gets its turn, however many do not. Next go those
that have sent part of a head; those that have asked before and never showed a key; those whose request has shown none
for a while, however busy it keeps us (a body that trickles in, an answer that is not read); those with a key that are
between two requests; and last the requests that have shown no key yet. What was let in is never cut while it is at
work; where only such are left, the newcomer is told to come back.

Descriptors are the limit behind it all: see :mod:`paddock.descriptors`.
"""

from __future__ import annotations

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
"""For a request to show a key, or to be answered without one, before its connection may go to make room."""
_LOOKS = 16
_HOST_BITS = 64
_DESCRIPTORS_PER_CONNECTION = 3
"""One to a port of a sandbox: the client's, our duplicate of it, and the one into the sandbox."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    in_all: int
    unproven: int
    """Of those, the ones that have shown no key and were not let in to a public port."""
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
        """Those that may go of its kind; None while it is at work."""
        self.asked_at = 0.0
        """When the request began that is under way."""
        self.source = source
        self.ended = False
        self.user_id: str | None = None
        """For whom it is at work."""
        self.proven = False
        """It has shown a key, or a token that stands for one."""
        self.close: Callable[[], object] = _nothing
        """Lets go of it. For when it is not at work."""
        self.has_data: Callable[[], bool] = _no
        """Whether something has come that nobody has read yet."""

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
        """A request began. Until it is known whose it is, it is not at work."""
        self.asked_at = time.monotonic()
        self._move(None if self.proven else self._connections.asking)

    def let_in(self) -> None:
        """The request under way is at work although it has shown no key: it is for a public port."""
        self._move(None)

    def trust(self) -> None:
        """Another server speaks here for many clients, which it counts by their addresses."""
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
        """``proxies``: networks of proxies in front of the server, which speak for many clients."""
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
        """Requests that are under way and have shown no key."""
        self._unproven = (self.silent, self.begun, self.idle)
        self._waiting = (*self._unproven, self.idle_proven)
        self.working: Counter[str] = Counter()
        """How many are at work for each user."""
        self.detach = 0
        """How many went to make room."""
        self.refused = 0

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, address: str, descriptor: int = 0) -> TrackedConnection | None:
        """The newcomer's entry; None where there is no room, and nobody who could make it."""
        limits, source = self.limits, _source(address)
        if self._is_crowded(source) and not self.is_proxy(address) and not self._let_go_from(source):
            self.refused += 1
            return None
        if sum(map(len, self._unproven)) + len(self.asking) >= limits.unproven:
            self._let_go(*self._unproven, self._asking_for_long())
        if descriptor >= limits.descriptors:
            # The one that went gives its number back a moment later: this one is of the server's own.
            self._let_go(*self._unproven, self._asking_for_long(), self.idle_proven)
            self.refused += 1
            return None
        kinds = (*self._unproven, self._asking_for_long(), self.idle_proven, self.asking)
        if len(self._all) >= limits.in_all and not self._let_go(*kinds):
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

    def _let_go_from(self, source: str) -> bool:
        mine = self._by_source.get(source, {})
        for waiting in (*self._waiting, self.asking):
            for tracked in mine:
                if tracked.among is waiting:
                    self._end(tracked)
                    return True
        return False

    def _let_go(self, *kinds: dict[TrackedConnection, None]) -> bool:
        """The oldest of the first kind that there is any of."""
        self._look_for_data()
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

    def _look_for_data(self) -> None:
        """The oldest silent ones may have spoken, and we may have been too busy to read it."""
        for _ in range(_LOOKS):
            oldest = next(iter(self.silent), None)
            if oldest is None or not oldest.has_data():
                return
            oldest.begin()

    def _end(self, tracked: TrackedConnection) -> None:
        self.detach += 1
        tracked.end()
        tracked.close()


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
