"""What one connection of a sandbox may take, and its bytes as they are counted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

from paddock.egress.records import ConnectionEntry
from paddock.http1.limits import MAX_HEAD_BYTES
from paddock.http1.stream_socket import StreamSocket
from paddock.http1.stream_socket import tunnel as tunnel_bytes


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 512
    """Concurrent, of one sandbox; further ones are answered with 503."""
    head_bytes: int = MAX_HEAD_BYTES
    head_seconds: float = 15.0
    """For a complete request head, so that a slow client does not hold resources for long."""
    connect_seconds: float = 15.0
    keep_alive_seconds: float = 75.0
    """Between two requests on one connection."""
    idle_seconds: float = 900.0
    """Without traffic in either direction."""
    peek_seconds: float = 0.5
    """For the first bytes of a client that may be waiting for the server to send first (SSH, SMTP)."""
    peek_bytes: int = 32_768
    lookups: int = 64
    """Concurrent DNS queries; further ones are dropped, and clients retry them."""


class Traffic:
    """Counts the bytes of a connection. As a context it times out after a period without any."""

    held = False

    def __init__(self, entry: ConnectionEntry, idle_seconds: float) -> None:
        self._entry = entry
        self._seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._set_at = self._loop.time()
        self._timeout = asyncio.timeout(idle_seconds)

    def sent(self, count: int) -> None:
        self._entry.sent(count)
        self._touch()

    def received(self, count: int) -> None:
        self._entry.received(count)
        self._touch()

    def _touch(self) -> None:
        now = self._loop.time()
        # Rescheduling the timer for every chunk would cost more than the chunk.
        if now - self._set_at > self._seconds / 8:
            self._set_at = now
            self._timeout.reschedule(now + self._seconds)

    @property
    def expired(self) -> bool:
        return self._timeout.expired()

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, raised, trace)


async def tunnel(client: StreamSocket, server: StreamSocket, entry: ConnectionEntry, idle_seconds: float) -> str:
    """Returns how it ended."""
    traffic = Traffic(entry, idle_seconds)
    try:
        async with traffic:
            await tunnel_bytes(client, server, traffic.sent, traffic.received)
    except OSError:
        # Pass a reset on to the other side: a broken connection must not look complete.
        client.reset()
        server.reset()
        if traffic.expired:
            return f"closed after {idle_seconds:g} idle seconds"
        return "reset by the client" if client.failed else "reset by the server"
    return "complete"
