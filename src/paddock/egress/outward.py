"""A connection that the server makes in a sandbox's stead: judged, resolved and recorded as if it came from inside."""

from __future__ import annotations

import socket
from typing import Self

from paddock import errors
from paddock.egress.bandwidth import bytes_acked_and_received
from paddock.egress.gate import EgressConnection, EgressGate
from paddock.http1.hosts import parse_host


class OutboundConnection:
    """``sock`` is connected and does not block. It is cut when a change of the policy forbids it."""

    def __init__(self, gate: EgressGate, connection: EgressConnection) -> None:
        self._gate = gate
        self._connection = connection
        self.sock: socket.socket = connection.wire.sock.dup()
        self.sock.setblocking(False)
        connection.cut = self._cut

    @classmethod
    async def open(cls, gate: EgressGate, host: str, port: int, seconds: float) -> Self:
        """Every spelling of a host is understood first, so that rules and resolver agree on what was asked for."""
        try:
            return cls(gate, await gate.connect(parse_host(host), port, seconds))
        except errors.Forbidden as refusal:
            raise errors.Forbidden(f"{host}:{port} cannot be reached from this sandbox: {refusal.message}") from None

    def close(self) -> None:
        """The caller has closed ``sock``, or handed it on to what closes it."""
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
