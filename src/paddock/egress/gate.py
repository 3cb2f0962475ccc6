"""The one place that decides whether a connection may leave a sandbox, and that knows all open ones.

Proxy, transparent proxy and DNS relay of a sandbox share one gate: one policy, one ledger, one live update.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Self

from paddock import errors
from paddock.egress.addresses import PrivateAccess
from paddock.egress.bandwidth import bytes_acked_and_received
from paddock.egress.dial import dial
from paddock.egress.policy import EgressPolicy
from paddock.egress.records import ConnectionEntry, EgressLedger, EgressReport
from paddock.egress.resolve import Resolve
from paddock.http1.hosts import Address, Host, parse_host, unmapped
from paddock.http1.stream_socket import StreamSocket

_MAX_NAMES_PER_ADDRESS = 16
_LOOPBACK = ("127.0.0.1", "::1")


class EgressConnection:
    """An outgoing connection: its socket, and its entry in the ledger."""

    def __init__(
        self,
        stream: StreamSocket,
        entry: ConnectionEntry,
        names: Sequence[str],
        address: Address,
        resolved: Sequence[str],
    ) -> None:
        self.stream = stream
        self.entry = entry
        self.names = names
        self.resolved = resolved
        self.address = address
        self.cut: Callable[[], object] | None = None
        """Called when a policy change forbids this connection."""


class EgressRefused(errors.Forbidden):
    """Refused because of the address to which a name was resolved."""

    def __init__(self, why: str, address: Address | None = None) -> None:
        super().__init__(why)
        self.address = address


class LearnedNames:
    """Which names a sandbox was given an address for: for protocols whose clients do not send the host name."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._names: dict[Address, dict[str, None]] = {}

    def learn(self, name: str, addresses: Sequence[Address]) -> None:
        for address in addresses:
            names = self._names.pop(address, {})
            names.pop(name, None)
            names[name] = None
            while len(names) > _MAX_NAMES_PER_ADDRESS:
                del names[next(iter(names))]
            self._names[address] = names
        while len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def names_of(self, address: Address) -> tuple[str, ...]:
        return tuple(self._names.get(address, ()))


class EgressGate:
    def __init__(
        self, policy: EgressPolicy, *, reach: PrivateAccess, resolve: Resolve, ledger: EgressLedger | None = None
    ) -> None:
        self.policy = policy
        self.ledger = ledger or EgressLedger()
        self._reach = reach
        self._resolve = resolve
        self._open: set[EgressConnection] = set()
        self.learned = LearnedNames()

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def report(self) -> EgressReport:
        return EgressReport(self.policy, self.ledger.totals, self.ledger.latest)

    def update(self, policy: EgressPolicy) -> None:
        """Apply a new policy to new connections at once, and close open ones that are no longer allowed."""
        self.policy = policy
        for connection in list(self._open):
            port = connection.entry.port
            if why := self.refusal(connection.names, connection.address, port, connection.resolved):
                connection.entry.end(f"cut by a change of the policy: {why}")
                if connection.cut is not None:
                    connection.cut()

    def refusal(self, names: Sequence[str], address: Address, port: int, resolved: Sequence[str] = ()) -> str | None:
        """``names``: names of the destination, including those claimed by the client; ``resolved``: those of them that
        this server resolved to this address."""
        return self.unreachable(address, port, resolved) or self.policy.refusal(names, address, port)

    def unreachable(self, address: Address, port: int | None, resolved: Sequence[str] = ()) -> str | None:
        """Why no rule of the sandbox can make this address reachable, or None."""
        try:
            return self._reach.refusal(address, self.policy, names=resolved, port=port)
        except errors.Unavailable as trouble:
            return trouble.message  # an address that cannot be judged is refused

    def needs_name(self, address: Address, port: int) -> bool:
        """Whether the name of a destination can change the decision for its address."""
        if self.unreachable(address, port) is None:
            return self.policy.has_names
        return self.policy.opens_names or self._reach.has_names

    async def addresses(self, name: str, port: int | None) -> list[Address]:
        """The reachable addresses of a name. A port of None means any port, as in a DNS query.

        Every address is judged, and only these are connected to, whatever the name resolves to later.
        """
        if why := self.policy.name_refusal(name, port):
            raise errors.Forbidden(why)
        answers = [unmapped(ip_address(answer.partition("%")[0])) for answer in await self._answers(name)]
        refusals = [self._refusal_of_answer(name, answer, port) for answer in answers]
        within = [answer for answer, why in zip(answers, refusals, strict=True) if why is None]
        if not within:
            raise EgressRefused(refusals[0] or "", answers[0]) if refusals else EgressRefused("it has no address")
        return within

    async def connect(
        self, host: Host, port: int, seconds: float, *, meant: Address | None = None, names: Sequence[str] = ()
    ) -> EgressConnection:
        """Check, resolve, check again, connect. Every outcome is recorded in the ledger.

        ``meant`` is the address that a client was given for the name ``host``: used if it is one of the name's
        addresses. ``names`` are those by which the address ``host`` became known.
        """
        entry = self.ledger.begin(str(host), port)
        try:
            await entry.ready()
            if isinstance(host, str):
                addresses = await self._meant(host, port, meant)
                return await self._connect(addresses, (host,), (host,), entry, seconds)
            return await self._connect([host], names, self.learned.names_of(host), entry, seconds)
        except errors.Forbidden as trouble:
            self.refused(entry, trouble)
            raise
        except errors.PaddockError as trouble:
            entry.end(trouble.message)
            raise
        except TimeoutError:
            entry.end("no answer in time")
            raise
        finally:
            if entry.address is None:
                entry.end("given up")

    @staticmethod
    def refused(entry: ConnectionEntry, trouble: errors.Forbidden) -> None:
        """Record a refusal with the address to which the name was resolved, so that the operator sees what was
        attempted."""
        if isinstance(trouble, EgressRefused) and trouble.address is not None:
            entry.address = str(trouble.address)
        entry.end(trouble.message, allowed=False)

    def finish(self, connection: EgressConnection, reason: str) -> None:
        self._open.discard(connection)
        connection.entry.left_unread(bytes_acked_and_received(connection.stream.sock)[1])
        connection.stream.close()
        connection.entry.end(reason)

    async def _meant(self, name: str, port: int, meant: Address | None) -> Sequence[Address]:
        if meant is not None and name in self.learned.names_of(meant):
            return [meant]
        addresses = await self.addresses(name, port)
        return [meant] if meant in addresses else addresses

    async def _connect(
        self,
        addresses: Sequence[Address],
        names: Sequence[str],
        resolved: Sequence[str],
        entry: ConnectionEntry,
        seconds: float,
    ) -> EgressConnection:
        for address in addresses:
            if why := self.refusal(names, address, entry.port, resolved):
                raise EgressRefused(why, address)
        address, sock = await dial(addresses, entry.port, seconds)
        stream = StreamSocket(sock)
        try:
            return self._opened(EgressConnection(stream, entry, names, address, resolved))
        except BaseException:
            stream.reset()
            raise

    def _opened(self, connection: EgressConnection) -> EgressConnection:
        sock, address, entry = connection.stream.sock, connection.address, connection.entry
        if self._reach.is_self(str(sock.getsockname()[0]), str(sock.getpeername()[0]), connection.resolved):
            raise EgressRefused("an address of the host itself is never reachable from a sandbox", address)
        # The policy may have changed while connecting.
        if why := self.refusal(connection.names, address, entry.port, connection.resolved):
            raise EgressRefused(why, address)
        entry.address = str(address)
        connection.stream.ready = entry.ready
        self._open.add(connection)
        return connection

    async def _answers(self, name: str) -> Sequence[str]:
        # RFC 6761: these names are the loopback and must not be sent to a resolver.
        if name == "localhost" or name.endswith(".localhost"):
            return _LOOPBACK
        return await self._resolve(name)

    def _refusal_of_answer(self, name: str, answer: Address, port: int | None) -> str | None:
        if port is not None:
            return self.refusal((name,), answer, port, (name,))
        return self.unreachable(answer, None, (name,))


class OutboundConnection:
    """``sock`` is connected and non-blocking. It is shut down when a policy change forbids the connection."""

    def __init__(self, gate: EgressGate, connection: EgressConnection) -> None:
        self._gate = gate
        self._connection = connection
        self.sock: socket.socket = connection.stream.sock.dup()
        self.sock.setblocking(False)
        connection.cut = self._cut

    @classmethod
    async def open(cls, gate: EgressGate, host: str, port: int, seconds: float) -> Self:
        """Connect to a host, in any spelling that ``parse_host`` accepts. Raises Forbidden if the policy refuses it."""
        try:
            return cls(gate, await gate.connect(parse_host(host), port, seconds))
        except errors.Forbidden as refusal:
            raise errors.Forbidden(f"{host}:{port} cannot be reached from this sandbox: {refusal.message}") from None

    def close(self) -> None:
        """Record the end. The caller has closed ``sock``, or passed it on to its new owner."""
        acked, received = bytes_acked_and_received(self._connection.stream.sock)
        self._connection.entry.sent(acked)
        self._connection.entry.received(received)
        self._gate.finish(self._connection, "complete")

    def _cut(self) -> None:
        self._connection.stream.reset()
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed already
            return
