"""A sandbox's proxy on the loopback, and servers outside for it to reach. Every test runs on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.egress.outside import Handler, Sandbox, Server, make_sandbox

Serve = Callable[[Handler], Awaitable[Server]]
Make = Callable[..., Sandbox]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server on the loopback; its connections end with the test."""
    servers: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(handler: Handler) -> Server:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made.accepted.append(b"")
            task = asyncio.ensure_future(handler(reader, writer))
            tasks.add(task)
            task.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        servers.append(server)
        made = Server(server.sockets[0].getsockname()[1])
        return made

    yield start
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Sandbox] = []
    defects: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: defects.append(context) if "task" in context else None)

    def start(*args: Any, **options: Any) -> Sandbox:
        made.append(make_sandbox(*args, **options))
        return made[-1]

    yield start
    for sandbox in made:
        await sandbox.close()
    assert defects == []


@pytest.fixture
async def sandbox(make: Make) -> Sandbox:
    """Everything public is allowed, and the loopback, where the tests' servers are, is opened by the operator."""
    return make()


@pytest.fixture
def free_port() -> int:
    """Where nobody listens: bound once, so that the kernel chose it, and let go."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
