"""The proxy of one sandbox: HTTP and CONNECT, on a socket that listens inside the sandbox and is served by the host.

The sandbox has no other route out, so only connections of this proxy leave it.
"""

from __future__ import annotations

import socket

from paddock.egress import answers
from paddock.egress.acceptor import Acceptor
from paddock.egress.gate import EgressGate
from paddock.egress.limits import Limits
from paddock.egress.policy import EgressPolicy
from paddock.egress.records import EgressReport
from paddock.egress.session import ProxySession
from paddock.http1.stream_socket import StreamSocket


class EgressProxy:
    """``listener`` was created in the sandbox's network namespace, to which it stays bound; the proxy owns it."""

    def __init__(self, listener: socket.socket, gate: EgressGate, limits: Limits | None = None) -> None:
        self._gate = gate
        self._limits = limits or Limits()
        self._acceptor = Acceptor(
            listener, self._serve, self._limits.connections, answers.too_many(self._limits.connections)
        )

    def start(self) -> None:
        """Needs a running event loop; earlier connections wait in the socket's backlog."""
        self._acceptor.start()

    async def close(self) -> None:
        """Close every connection and the listener."""
        await self._acceptor.close()

    def update(self, policy: EgressPolicy) -> None:
        self._gate.update(policy)

    def report(self) -> EgressReport:
        return self._gate.report()

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return self._acceptor.connections

    async def _serve(self, client: StreamSocket) -> None:
        await ProxySession(client, self._gate, self._limits).run()
