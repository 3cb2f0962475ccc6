"""Accepting, where the process has no descriptor left: it rests, spins not, resets nobody, and goes on."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

from paddock.gateway.connections import ConnectionLimits, Connections, TrackedConnection
from paddock.gateway.listener import Listener, bind
from tests.support.waiting import PATIENCE_S, until


class Short(socket.socket):
    """A listening socket of a process that is out of descriptors for so many tries."""

    refusals = 3
    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        Short.tries += 1
        if Short.refusals:
            Short.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Echo(asyncio.Protocol):
    def __init__(self, tracked: TrackedConnection) -> None:
        self._tracked = tracked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tracked.end()


async def test_accepting_rests_and_goes_on() -> None:
    (plain,) = bind("127.0.0.1", 0, 16)
    listening = Short(fileno=plain.detach())
    connections = Connections(ConnectionLimits.derive(16, 0))
    listener = Listener([listening], connections, Echo)
    listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", listening.getsockname()[1])
    writer.write(b"hello")
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.readexactly(5) == b"hello", "it waited in the queue"
    assert Short.tries <= 8, "a ready socket that cannot be accepted must not keep the loop busy"
    assert len(connections) == 1
    writer.close()
    await until(lambda: not len(connections))
    listener.close()
    await listener.wait_closed()


def test_another_server_speaks_for_more_clients_than_one_address_may_have() -> None:
    connections = Connections(ConnectionLimits.derive(64, 2))
    at_work = [connections.admit("10.0.0.5") for _ in range(2)]
    for tracked in at_work:
        assert tracked is not None
        tracked.busy()
        tracked.prove()
    assert connections.admit("10.0.0.5") is None
    assert at_work[0] is not None
    at_work[0].trust()
    newcomer = connections.admit("10.0.0.5")
    assert newcomer is not None
    for tracked in (*at_work, newcomer):
        assert tracked is not None
        tracked.end()
    assert len(connections) == 0
