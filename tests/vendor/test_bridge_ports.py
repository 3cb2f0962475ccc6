"""Ports over the bridge: both ways, half closed, at the pace of the slower end, and from inside out."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket

import pytest

from paddock import errors
from paddock.machine.agent.ports import ListenerKind
from tests.agent.client import names_in
from tests.support.waiting import PATIENCE_S, until
from tests.vendor.remote_agent import RemoteAgent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def test_half_closing_lets_the_answer_come(agent: RemoteAgent) -> None:
    async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).hexdigest().encode())
        writer.close()

    data = os.urandom(3 << 20)
    server = await asyncio.start_server(digest, "127.0.0.1", 0)
    async with server, agent.machine() as machine, asyncio.timeout(PATIENCE_S):
        connection = await machine.dial(server.sockets[0].getsockname()[1])
        await connection.write(data)
        await connection.end_write()
        said = b""
        while more := await connection.read():
            said += more
        await connection.close()
    assert said.decode() == hashlib.sha256(data).hexdigest()


async def test_who_inside_closes_first_still_says_what_he_had_to_say(agent: RemoteAgent) -> None:
    words = os.urandom(1 << 20)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, agent.machine() as machine, asyncio.timeout(PATIENCE_S):
        connection = await machine.dial(server.sockets[0].getsockname()[1])
        heard = b""
        while more := await connection.read():
            heard += more
        await connection.close()
    assert heard == words


async def test_whoever_does_not_read_holds_up_the_writer(agent: RemoteAgent) -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                written += 65536
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server, agent.machine() as machine, asyncio.timeout(PATIENCE_S):
        connection = await machine.dial(server.sockets[0].getsockname()[1])
        assert await connection.read(1)
        held, same = -1, 0
        while same < 10:  # until it stands still
            await asyncio.sleep(0.1)
            same, held = (same + 1 if written == held else 0), written
        assert held < 64 << 20
        read = 0
        while read < held + (1 << 20):  # and when somebody reads, it goes on
            read += len(await connection.read())
        await connection.close()


async def test_a_port_where_nobody_listens_is_refused(agent: RemoteAgent) -> None:
    async with agent.machine() as machine:
        with pytest.raises(errors.Conflict, match="Nothing listens"):
            await machine.dial(free_port())
        with pytest.raises(errors.Invalid):
            await machine.dial(0)


async def test_connections_made_inside_come_to_a_listener_outside(agent: RemoteAgent) -> None:
    loop = asyncio.get_running_loop()
    async with agent.machine() as machine, asyncio.timeout(PATIENCE_S):
        port = free_port()
        listener = await machine.listen_socket(port)
        for number in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"%d" % number)
            writer.write_eof()
            accepted, _ = await loop.sock_accept(listener)
            accepted.setblocking(False)
            assert await loop.sock_recv(accepted, 10) == b"%d" % number
            assert await loop.sock_recv(accepted, 10) == b""
            await loop.sock_sendall(accepted, b"heard")
            accepted.close()
            assert await reader.read() == b"heard"
            writer.close()
        listener.close()


async def test_a_port_that_is_taken_inside_cannot_be_listened_on(agent: RemoteAgent) -> None:
    async with agent.machine() as machine:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(errors.Conflict, match="taken"):
            await machine.listen_socket(taken.getsockname()[1])
        with pytest.raises(errors.Unsupported):
            await machine.listen_socket(5353, ListenerKind.DATAGRAM)


async def test_connections_leave_nothing_behind(agent: RemoteAgent) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    def held() -> int:
        return len(names_in(f"/proc/{agent.pid}/fd"))

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, agent.machine() as machine, asyncio.timeout(PATIENCE_S):
        port = server.sockets[0].getsockname()[1]
        await machine.usage()
        before = held()
        for number in range(20):
            connection = await machine.dial(port)
            if number % 2:
                assert await connection.read() == b"hello"
            await connection.close()
        await until(lambda: held() <= before)
