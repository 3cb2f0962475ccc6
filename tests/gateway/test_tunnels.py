"""WebSockets and every other Upgrade: both directions raw, each with an end of its own."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.bed import Box


def dial_socket(box: Box, **options: object) -> connect:
    headers = {"X-API-Key": box.bed.key}
    return connect(
        f"ws://{box.host()}/ws",
        host="127.0.0.1",
        port=box.bed.port,
        additional_headers=headers,
        compression=None,
        proxy=None,
        max_size=None,
        **options,  # type: ignore[arg-type]
    )


async def test_a_websocket_says_back_what_it_is_told(box: Box) -> None:
    async with dial_socket(box) as ws:
        for message in ("hello", "", "ü" * 1000, b"\x00\xff" * 50_000):
            await ws.send(message)
            assert await ws.recv() == message


async def test_an_upgrade_to_any_protocol(box: Box) -> None:
    async with await box.dial() as peer:
        switched = await peer.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")
        assert (switched.status, switched.headers["upgrade"]) == (101, "my-protocol")
        for _ in range(3):
            await peer.send(b"GET /health HTTP/1.1\r\n\r\n\x00\xff")
            assert await peer.reader.readexactly(26) == b"GET /health HTTP/1.1\r\n\r\n\x00\xff"


async def test_each_direction_of_a_tunnel_ends_by_itself(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")
        await peer.send(b"last words")
        peer.writer.write_eof()
        assert await peer.reader.readexactly(10) == b"last words"
        assert await peer.at_end()


async def test_a_server_that_does_not_switch_leaves_the_connection_as_it_was(box: Box) -> None:
    """And every request after it is judged anew: it is no tunnel."""
    async with await box.dial() as peer:
        assert (await peer.ask("GET /no-upgrade", "Connection: Upgrade", "Upgrade: websocket")).status == 200
        await peer.send(peer.head("GET /seen", key=False))
        assert (await peer.reply()).status == 403
        assert (await peer.ask("GET /seen")).status == 200


async def test_an_upgrade_that_the_api_does_not_know_is_passed_over(box: Box) -> None:
    async with await box.dial() as peer:
        head = f"GET /health HTTP/1.1\r\nHost: localhost:{box.bed.port}\r\n"
        await peer.send(
            f"{head}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n".encode()
        )
        assert (await peer.reply()).status == 200
        assert json.loads((await peer.ask("GET /seen")).body)["target"] == "/seen"


async def test_a_websocket_of_the_api_works_beside_it(box: Box) -> None:
    url = f"ws://127.0.0.1:{box.bed.port}/sandboxes/{box.sandbox_id}/terminal?command=echo+hi"
    async with connect(url, additional_headers={"X-API-Key": box.bed.key}, proxy=None) as ws:
        assert json.loads(await ws.recv())["type"] == "ready"


async def test_200_websockets_at_once(local_box: Box) -> None:
    async def open_one(number: int) -> ClientConnection:
        ws = await dial_socket(local_box)
        await ws.send(f"first {number}")
        assert await ws.recv() == f"first {number}"
        return ws

    open_sockets = await asyncio.gather(*(open_one(number) for number in range(200)))
    for ws in open_sockets:
        await ws.send("all are open")
    assert {await ws.recv() for ws in open_sockets} == {"all are open"}
    await asyncio.gather(*(ws.close() for ws in open_sockets))


@pytest.mark.parametrize("size", [1 << 20, 32 << 20])
async def test_a_tunnel_carries_more_than_any_buffer_holds(local_box: Box, size: int) -> None:
    async with await local_box.dial() as peer:
        await peer.ask("GET /", "Connection: Upgrade", "Upgrade: my-protocol")
        sending = asyncio.create_task(peer.send(bytes(size)))
        assert await peer.reader.readexactly(size) == bytes(size)
        await sending
