"""A port inside one sandbox that is served by this process, on a listener that the agent creates there and keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddock import errors
from paddock.egress.acceptor import Acceptor
from paddock.http1.stream_socket import StreamSocket
from paddock.machine.agent.machine import AgentMachine
from paddock.providers.base import InsideService, SandboxSpec

_MAX_CONNECTIONS = 64
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


class InsidePort:
    """May be opened before the machine is assigned to a sandbox: the spec is read for each connection."""

    def __init__(self, service: InsideService, spec: Callable[[], SandboxSpec]) -> None:
        self._service = service
        self._spec = spec
        self._acceptor: Acceptor | None = None

    async def open(self, machine: AgentMachine) -> None:
        """Idempotent. If a user's program already has the port, it keeps it."""
        if self._acceptor is not None:
            return
        try:
            listener = await machine.listen_socket(self._service.port)
        except errors.Conflict:
            return
        self._acceptor = Acceptor(listener, self._serve, _MAX_CONNECTIONS, _BUSY)
        self._acceptor.start()

    async def close(self) -> None:
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            await acceptor.close()

    def variables(self) -> Mapping[str, str]:
        return self._service.variables(self._spec().key)

    async def _serve(self, wire: StreamSocket) -> None:
        spec = self._spec()
        if spec.key:  # a warm machine without a sandbox has no key yet
            await self._service.serve(spec.sandbox_id, wire.sock)
