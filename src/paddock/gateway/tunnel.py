"""Bytes both ways, once both sides speak a protocol of their own: WebSocket, or whatever an Upgrade led to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddock.gateway.client_socket import gone
from paddock.gateway.exchange import TrafficCounter
from paddock.http1.stream_socket import StreamSocket

_HALF_CLOSED_SECONDS = 60.0
"""For a client to finish after the server has. Whether the server still listens shows only when something is sent."""


async def tunnel(client: StreamSocket, server: StreamSocket, lease: TrafficCounter) -> None:
    """Until each side has said its last. Raises OSError where one of them was cut off."""
    inward = asyncio.create_task(_pump(client, server, lease.sent))
    outward = asyncio.create_task(_pump(server, client, lease.received))
    leaving = None
    try:
        done, _ = await asyncio.wait((inward, outward), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not outward.done():
            leaving = asyncio.create_task(gone(client))
            await asyncio.wait((outward, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not outward.done():
                raise ConnectionAbortedError("The client is gone.")
            outward.result()
        elif not inward.done():
            await asyncio.wait((inward,), timeout=_HALF_CLOSED_SECONDS)
            if inward.done():
                inward.result()
    finally:
        tasks = [task for task in (inward, outward, leaving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: StreamSocket, sink: StreamSocket, moved: Callable[[int], None]) -> None:
    while count := await source.move(sink):
        moved(count)
    sink.end()
