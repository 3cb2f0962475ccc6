"""Relays bytes between two connections in both directions, until both sides have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from paddock.egress.records import ConnectionEntry
from paddock.http1.stream_socket import StreamSocket


class Idle:
    """Context that times out after a period without traffic."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._set_at = self._loop.time()
        self._timeout = asyncio.timeout(seconds)

    def touch(self) -> None:
        now = self._loop.time()
        # Rescheduling the timer for every chunk would cost more than the chunk.
        if now - self._set_at > self._seconds / 8:
            self._set_at = now
            self._timeout.reschedule(now + self._seconds)

    @property
    def expired(self) -> bool:
        return self._timeout.expired()

    async def __aenter__(self) -> Idle:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, raised, trace)


async def relay(client: StreamSocket, upstream: StreamSocket, passage: ConnectionEntry, idle_seconds: float) -> str:
    """Returns how it ended. Each direction ends separately: a side that has sent everything may still receive."""
    how = "complete"
    idle = Idle(idle_seconds)
    try:
        async with idle, asyncio.TaskGroup() as both:
            both.create_task(_pump(client, upstream, passage.sent, idle))
            both.create_task(_pump(upstream, client, passage.received, idle))
    except* OSError:
        how = "reset by the client" if client.failed else "reset by the server"
        if idle.expired:
            how = f"closed after {idle_seconds:g} idle seconds"
        # Pass a reset on to the other side: a broken connection must not look complete.
        client.reset()
        upstream.reset()
    return how


async def _pump(source: StreamSocket, sink: StreamSocket, count: Callable[[int], None], idle: Idle) -> None:
    while moved := await source.move(sink):
        count(moved)
        idle.touch()
    sink.end()
