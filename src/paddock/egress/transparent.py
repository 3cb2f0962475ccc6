"""Egress for programs without proxy support: every TCP connection of the namespace ends here and is made anew by the
host.

The namespace has only ``lo``. It needs, set up before anything else runs in it:

- ``lo`` up;
- the routes ``local default dev lo`` for IPv4 (scope host) and IPv6, both of type local in table local, which make
  every
  address local: ``ip route add local default dev lo`` and ``ip -6 route add local default dev lo``;
- :func:`ruleset`, loaded with ``nft -f -``;
- two listeners (``127.0.0.1`` and ``::1``) on the TCP port, and for DNS a UDP and a TCP socket on each.

Isolation does not depend on any of that: without the rules, or with other ones, a connection still ends at ``lo``, or
here, where its destination is judged like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from paddock import errors
from paddock.egress.acceptor import Acceptor
from paddock.egress.gate import EgressConnection, EgressGate
from paddock.egress.peek import Peeked, peek
from paddock.egress.proxy import denied
from paddock.egress.traffic import Limits, tunnel
from paddock.http1.hosts import Address, unmapped
from paddock.http1.stream_socket import StreamSocket

NAME_SERVER = "127.0.0.53"
"""For the sandbox's ``/etc/resolv.conf``."""

_SO_ORIGINAL_DST = 80  # SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
_RULES = """\
table inet paddock_egress {{
  chain outgoing {{
    type nat hook output priority -100; policy accept;
    ip daddr {name_server} meta l4proto {{ tcp, udp }} th dport 53 redirect to :{dns_port}
    ip daddr 127.0.0.0/8 return
    ip6 daddr ::1 return
    meta l4proto {{ tcp, udp }} th dport 53 redirect to :{dns_port}
    meta l4proto tcp redirect to :{tcp_port}
  }}
  chain filter_output {{
    type filter hook output priority 0; policy drop;
    ct state established,related accept
    ip daddr 127.0.0.0/8 accept
    ip6 daddr ::1 accept
  }}
}}
"""


def ruleset(tcp_port: int, dns_port: int) -> str:
    """Rules for ``nft -f -`` in the namespace: TCP to the listener, DNS to the relay, everything else dropped."""
    return _RULES.format(tcp_port=tcp_port, dns_port=dns_port, name_server=NAME_SERVER)


class TransparentProxy:
    """Serves the listeners, created in the sandbox's network namespace; the proxy owns them."""

    def __init__(self, listeners: Sequence[socket.socket], gate: EgressGate, limits: Limits | None = None) -> None:
        self._gate = gate
        self._limits = limits or Limits()
        self._acceptors = [Acceptor(one, self._serve, self._limits.connections) for one in listeners]

    def start(self) -> None:
        for acceptor in self._acceptors:
            acceptor.start()

    async def close(self) -> None:
        await asyncio.gather(*(acceptor.close() for acceptor in self._acceptors))

    async def _serve(self, client: StreamSocket) -> None:
        try:
            address, port = original_destination(client.sock)
            peeked = await self._peek(client, address, port)
            server = await self._connect(client, address, port, peeked)
            if server is not None:
                await self._carry(client, server)
        except OSError:
            client.reset()  # the client disconnected
        except asyncio.CancelledError:
            client.reset()
            raise
        finally:
            client.close()

    async def _peek(self, client: StreamSocket, address: Address, port: int) -> Peeked:
        """Peek only if a name can change the decision, because waiting delays the client."""
        if not self._gate.needs_name(address, port):
            return Peeked()
        try:
            return await peek(client, self._limits.peek_seconds, self._limits.peek_bytes)
        except errors.MalformedRequest:
            return Peeked()  # then the address decides

    async def _connect(
        self, client: StreamSocket, address: Address, port: int, peeked: Peeked
    ) -> EgressConnection | None:
        task = asyncio.current_task()
        seconds = self._limits.connect_seconds
        try:
            if not isinstance(peeked.name, str):
                names = self._gate.learned.names_of(address)
                server = await self._gate.connect(address, port, seconds, names=names)
            elif self._gate.policy.allows_address(address, port) and self._gate.unreachable(address, port) is None:
                server = await self._gate.connect(address, port, seconds, names=(peeked.name,))
            else:
                server = await self._gate.connect(peeked.name, port, seconds, meant=address)
        except errors.Forbidden as trouble:
            if peeked.http:
                await client.send(denied(str(peeked.name or address), port, trouble.message))
                await client.linger()
            else:
                client.reset()
            return None
        except (errors.PaddockError, TimeoutError):
            client.reset()  # the closest to "connection refused" for a connection that is already accepted
            return None
        server.cut = task.cancel if task is not None else None
        client.ready = server.entry.ready
        return server

    async def _carry(self, client: StreamSocket, server: EgressConnection) -> None:
        how = "closed with the proxy"
        try:
            how = await tunnel(client, server.stream, server.entry, self._limits.idle_seconds)
        finally:
            self._gate.finish(server, how)


def original_destination(sock: socket.socket) -> tuple[Address, int]:
    """The original destination of a redirected client; for one that was not redirected, the local address."""
    with contextlib.suppress(OSError):
        if sock.family == socket.AF_INET:
            raw = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
            return IPv4Address(raw[4:8]), struct.unpack_from("!H", raw, 2)[0]
        raw = sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, 28)
        return unmapped(IPv6Address(raw[8:24])), struct.unpack_from("!H", raw, 2)[0]
    # A namespace with the routes but without rules: the connection arrived at its intended address.
    here = sock.getsockname()
    plain = str(here[0]).partition("%")[0]
    return (IPv4Address(plain) if sock.family == socket.AF_INET else unmapped(IPv6Address(plain))), int(here[1])
