"""What one sandbox may ask of the server: heads, patience, connections, silence."""

from __future__ import annotations

import asyncio
import socket

import pytest

from paddock.egress.traffic import Limits
from tests.egress.conftest import Make, Serve
from tests.egress.sites import echo, web
from tests.support.waiting import PATIENCE_S, until


async def test_a_head_that_dribbles_in_is_given_up(make: Make) -> None:
    sandbox = make(limits=Limits(head_seconds=0.3))
    talk = await sandbox.dial()

    async def dribble() -> None:
        for byte in b"GET http://site.test/ HTTP/1.1\r\nX: " + b"y" * 1000:
            await talk.send(bytes([byte]))
            await asyncio.sleep(0.02)

    dribbling = asyncio.create_task(dribble())
    assert (await talk.head()).startswith("HTTP/1.1 408 ")
    dribbling.cancel()
    await asyncio.gather(dribbling, return_exceptions=True)
    await talk.close()
    await until(lambda: sandbox.proxy.connections == 0)


async def test_a_client_that_says_nothing_is_let_go(make: Make) -> None:
    sandbox = make(limits=Limits(keep_alive_seconds=0.1))
    assert await (await sandbox.dial()).rest() == b""


async def test_a_head_that_is_too_long_is_refused(make: Make) -> None:
    sandbox = make(limits=Limits(head_bytes=2000))
    head, body = await (await sandbox.dial()).ask(b"GET http://site.test/ HTTP/1.1\r\nX: " + b"y" * 3000 + b"\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ") and b"2000 bytes" in body


async def test_a_head_with_too_many_headers_is_refused(make: Make) -> None:
    sandbox = make()
    head, body = await (await sandbox.dial()).ask(b"GET http://site.test/ HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n")
    assert head.startswith("HTTP/1.1 400 ") and b"256 headers" in body


async def test_a_response_head_that_never_ends_is_given_up(make: Make, serve: Serve) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: y\r\n" * 1000)
            await writer.drain()

    sandbox = make()
    server = await serve(endless)
    head, _ = await (await sandbox.dial()).ask(f"GET http://site.test:{server.port}/ HTTP/1.1\r\n\r\n".encode())
    assert head.startswith("HTTP/1.1 502 ")


async def test_connections_past_the_limit_are_told_so_and_fewer_are_served_again(make: Make, serve: Serve) -> None:
    sandbox = make(limits=Limits(connections=3))
    server = await serve(echo)
    talks = [await sandbox.tunnel(f"site.test:{server.port}") for _ in range(3)]
    refused = await sandbox.dial()
    assert (await refused.head()).startswith("HTTP/1.1 503 ")
    await talks[0].close()
    await until(lambda: sandbox.proxy.connections == 2)
    await sandbox.tunnel(f"site.test:{server.port}")


async def test_a_tunnel_in_which_nothing_moves_is_closed_and_one_in_which_something_does_is_not(
    make: Make, serve: Serve
) -> None:
    sandbox = make(limits=Limits(idle_seconds=0.6))
    server = await serve(echo)
    idle, busy = [await sandbox.tunnel(f"site.test:{server.port}") for _ in range(2)]
    ended = asyncio.create_task(idle.rest())
    while not ended.done():
        await busy.send(b"x")
        assert await busy.read(1) == b"x"
        await asyncio.sleep(0.05)
    with pytest.raises(ConnectionResetError):
        await ended
    await busy.send(b"still")
    assert await busy.read(5) == b"still"
    [record] = await sandbox.recorded(1)
    assert "idle" in record.reason


async def test_a_server_that_never_answers_a_request_is_a_gateway_timeout(make: Make, serve: Serve) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    sandbox = make(limits=Limits(idle_seconds=0.2))
    server = await serve(silent)
    head, _ = await (await sandbox.dial()).ask(f"GET http://site.test:{server.port}/ HTTP/1.1\r\n\r\n".encode())
    assert head.startswith("HTTP/1.1 504 ")


async def test_an_address_that_does_not_answer_is_a_gateway_timeout(make: Make) -> None:
    """A listener whose queue is full lets connections hang, as a firewall does."""
    sandbox = make(limits=Limits(connect_seconds=0.3))
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        head, _ = await sandbox.connect(f"site.test:{full.getsockname()[1]}")
    assert head.startswith("HTTP/1.1 504 ")
    [record] = await sandbox.recorded(1)
    assert record.reason == "no answer in time"


async def test_an_address_that_refuses_is_passed_over_for_one_that_answers(make: Make, serve: Serve) -> None:
    sandbox = make()
    server = await serve(web)
    sandbox.names.say("two.test", ["127.0.0.9", "127.0.0.1"])
    async with asyncio.timeout(PATIENCE_S):
        await sandbox.tunnel(f"two.test:{server.port}")
