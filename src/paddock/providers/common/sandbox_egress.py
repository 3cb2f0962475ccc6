"""Egress of one sandbox according to its mode, served by this process on sockets inside the sandbox."""

from __future__ import annotations

import asyncio
import socket

from paddock.egress.addresses import PrivateAccess
from paddock.egress.bandwidth import Bandwidth
from paddock.egress.dns import DnsRelay
from paddock.egress.gate import EgressGate, OutboundConnection
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.proxy import EgressProxy, proxy_variables
from paddock.egress.records import EgressReport
from paddock.egress.resolve import HostResolver
from paddock.egress.transparent import TransparentProxy, ruleset
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.agent.ports import ListenerKind

PROXY_PORT = 3128
TRANSPARENT_PORT = 3129
DNS_PORT = 3153


def rules() -> str:
    return ruleset(TRANSPARENT_PORT, DNS_PORT)


def variables(policy: EgressPolicy) -> dict[str, str]:
    return proxy_variables(PROXY_PORT) if policy.mode is EgressMode.PROXY else {}


class SandboxEgress:
    """Opened before any user process runs, so that the ports are free; the agent keeps the listeners for a later
    server."""

    def __init__(
        self, policy: EgressPolicy, reach: PrivateAccess, resolver: HostResolver, bandwidth: Bandwidth
    ) -> None:
        resolve = resolver.share(lambda: self._gate.ledger.bandwidth.user_id)
        self._gate = EgressGate(policy, reach=reach, resolve=resolve)
        self._gate.ledger.bandwidth = bandwidth
        self._services: list[EgressProxy | TransparentProxy | DnsRelay] = []
        self._ready: socket.socket | None = None

    async def prepare(self, machine: AgentMachine) -> None:
        """Open the port that most sandboxes need while the machine is warm, so that the agent need not be asked later.
        It is not served yet: another server may hand the machine out."""
        self._ready = await machine.listen_socket(PROXY_PORT)

    def assign(self, policy: EgressPolicy, bandwidth: Bandwidth) -> None:
        """Set the policy of the sandbox that a prepared machine was assigned to."""
        self._gate.ledger.bandwidth = bandwidth
        self._gate.update(policy)
        if self._ready is not None and policy.mode is EgressMode.NONE:
            # shuts down the socket itself, of which the agent holds a descriptor, too
            self._ready.shutdown(socket.SHUT_RDWR)
            self._forget_ready()

    async def open(self, machine: AgentMachine) -> None:
        """Idempotent: a listener is served once."""
        if self._services:
            return
        match self._gate.policy.mode:
            case EgressMode.NONE:
                return
            case EgressMode.PROXY:
                listener, self._ready = self._ready or await machine.listen_socket(PROXY_PORT), None
                self._services = [EgressProxy(listener, self._gate)]
            case EgressMode.FULL:
                streams = [kind for kind in ListenerKind if not kind.datagrams]
                listeners = [await machine.listen_socket(TRANSPARENT_PORT, kind) for kind in streams]
                questions = [await machine.listen_socket(DNS_PORT, kind) for kind in streams]
                datagrams = [await machine.listen_socket(DNS_PORT, kind) for kind in ListenerKind if kind.datagrams]
                relay = DnsRelay(datagrams, questions, self._gate)
                self._services = [TransparentProxy(listeners, self._gate), relay]
        for service in self._services:
            service.start()

    async def connect(self, host: str, port: int, seconds: float) -> OutboundConnection:
        """Connect from this process instead of from inside, under the same rules and in the same ledger."""
        return await OutboundConnection.open(self._gate, host, port, seconds)

    async def close(self) -> None:
        self._forget_ready()
        services, self._services = self._services, []
        await asyncio.gather(*(service.close() for service in services))

    def _forget_ready(self) -> None:
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def update(self, policy: EgressPolicy) -> None:
        self._gate.update(policy)

    def report(self) -> EgressReport:
        return self._gate.report()
