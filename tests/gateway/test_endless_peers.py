"""Peers that send small pieces without end, on either side: nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from tests.gateway.bed import Bed, Box
from tests.support.stalls import free_loop
from tests.support.waiting import PATIENCE_S

PORT = 4000
SECONDS = 1.5
"""That a peer goes on, of those who would go on for ever."""
CHUNKS = 200_000

SERVER = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", {port}))
def serve(client):
    try:
        asked = client.recv(65536)
        if b"/heads" in asked:
            while True:
                client.sendall(b"HTTP/1.1 103 Early Hints\\r\\n\\r\\n" * 3000)
        client.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        for _ in range({chunks} // 1000):
            client.sendall(b"1\\r\\na\\r\\n" * 1000)
        client.sendall(b"0\\r\\n\\r\\n")
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def endless(local_bed: Bed) -> Iterator[Box]:
    box = local_bed.create()
    with local_bed.api() as api:
        content = SERVER.format(port=PORT, chunks=CHUNKS)
        body = {"sandbox_id": box.sandbox_id, "path": "/workspace/endless.py", "content": content}
        api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run("python3 /workspace/endless.py", background=True)
    box.run(f"until (: < /dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done", timeout=60)
    yield box
    box.delete()


@pytest.mark.parametrize("form", ["host", "path"])
async def test_a_server_that_never_comes_to_its_answer_is_given_up(endless: Box, form: str) -> None:
    with free_loop(endless.bed.context.watchdog):
        async with await endless.dial() as peer:
            host = endless.host(PORT) if form == "host" else f"127.0.0.1:{endless.bed.port}"
            target = "/heads" if form == "host" else f"/p/{endless.key}/{PORT}/heads"
            await peer.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {endless.bed.key}\r\n\r\n".encode())
            while (reply := await peer.reply()).status == 103:
                pass
        assert reply.status == 502 and b"interim responses" in reply.body


async def test_an_answer_in_the_smallest_chunks_holds_nobody_up_and_arrives_whole(endless: Box) -> None:
    with free_loop(endless.bed.context.watchdog):
        async with await endless.dial() as peer:
            await peer.send(peer.head("GET /chunks", port=PORT))
            head = await asyncio.wait_for(peer.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            received = 0
            async with asyncio.timeout(PATIENCE_S):
                while not (data := await peer.reader.read(1 << 20)).endswith(b"\r\n0\r\n\r\n"):
                    received += len(data)
            received += len(data)
    assert head.startswith(b"HTTP/1.1 200") and received == CHUNKS * len(b"1\r\na\r\n") + len(b"0\r\n\r\n")


async def test_strangers_who_send_the_smallest_chunks_hold_nobody_up(endless: Box) -> None:
    bed = endless.bed

    async def stranger() -> None:
        async with await endless.dial() as peer:
            try:
                await peer.send(b"POST /sandboxes/create HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    await peer.send(b"1\r\na\r\n" * 40_000)
            except ConnectionError:
                return

    with free_loop(bed.context.watchdog):
        await asyncio.gather(*(stranger() for _ in range(4)))


async def test_a_body_in_the_smallest_chunks_is_read_whole_and_so_is_what_follows(endless: Box) -> None:
    content = "x" * 30_000
    document = {"sandbox_id": endless.sandbox_id, "path": "small.txt", "content": content}
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in json.dumps(document).encode()) + b"0\r\n\r\n"
    key = f"Host: x\r\nX-API-Key: {endless.bed.key}\r\n"
    post = f"POST /sandboxes/write-file HTTP/1.1\r\n{key}Transfer-Encoding: chunked\r\n\r\n".encode()
    async with await endless.dial() as peer:
        await peer.send(post + body + f"GET /health HTTP/1.1\r\n{key}\r\n".encode())
        assert (await peer.reply()).status == 200
        assert json.loads((await peer.reply()).body)["status"] == "ok"
    assert endless.run("wc -c < small.txt").strip() == str(len(content))


async def test_a_stranger_who_sends_refused_requests_ahead_holds_nobody_up(endless: Box) -> None:
    request = b"GET /p/aaaaaaaaaaaaaaaaaaaa/3000/ HTTP/1.1\r\nHost: x\r\nSec-Fetch-Dest: document\r\n\r\n"

    async def send() -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await peer.send(request * 500)

    with free_loop(endless.bed.context.watchdog):
        async with await endless.dial() as peer:
            sending = asyncio.create_task(send())
            refused = 0
            try:
                while not sending.done():
                    refused += len(await asyncio.wait_for(peer.reader.read(1 << 20), PATIENCE_S))
            except ConnectionError:
                pass
            await asyncio.gather(sending, return_exceptions=True)
    assert refused
