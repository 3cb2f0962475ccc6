"""A connection that the server makes on behalf of a sandbox: judged, resolved and recorded like one from inside."""

from __future__ import annotations

import socket
from typing import Self

from paddock import errors
from paddock.egress.bandwidth import bytes_acked_and_received
from paddock.egress.gate import EgressConnection, EgressGate
from paddock.http1.hosts import parse_host


class OutboundConnection:
    """``sock`` is connected and non-blocking. It is shut down when a policy change forbids the connection."""

    def __init__(self, gate: EgressGate, connection: EgressConnection) -> None:
        self._gate = gate
        self._connection = connection
        self.sock: socket.socket = connection.wire.sock.dup()
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
        acked, received = bytes_acked_and_received(self._connection.wire.sock)
        self._connection.passage.sent(acked)
        self._connection.passage.received(received)
        self._gate.finish(self._connection, "complete")

    def _cut(self) -> None:
        self._connection.wire.reset()
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed already
            return
