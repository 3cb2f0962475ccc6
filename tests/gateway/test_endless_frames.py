"""WebSockets of the API's own whose client sends tiny frames without end: nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.gateway.bed import Bed, Box
from tests.support.stalls import free_loop
from tests.support.waiting import PATIENCE_S, until

SECONDS = 1.5
"""That a peer goes on, of those who would go on for ever."""
_BATCH = 20_000
FRAMES = {
    "pings": b"\x89\x80\0\0\0\0",
    "pongs": b"\x8a\x80\0\0\0\0",
    "bytes": b"\x82\x81\0\0\0\0a",
    "empty": b"\x82\x80\0\0\0\0",
    "continuations": b"\x00\x80\0\0\0\0",
}
TERMINAL = "/sandboxes/{}/terminal?command=cat"
NOTIFICATIONS = "/daytona/api/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def box(local_bed: Bed) -> Box:
    return local_bed.create()


async def connected(bed: Bed, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.port)
    upgrade = (
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}=="
    )
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nX-API-Key: {bed.key}\r\n{upgrade}\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    assert b" 101 " in head, head
    return reader, writer


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + len(payload).to_bytes(2, "big")
    return bytes([(0x80 if fin else 0) | opcode]) + size + bytes(4) + payload


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> None:
    reading = asyncio.create_task(reader.read(-1))
    until = time.monotonic() + SECONDS
    try:
        while time.monotonic() < until:
            writer.write(frame * _BATCH)
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + SECONDS):
                await writer.drain()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("target", [TERMINAL, NOTIFICATIONS], ids=["terminal", "notifications"])
@pytest.mark.parametrize("kind", FRAMES)
async def test_tiny_frames_without_end_hold_nobody_up(box: Box, target: str, kind: str) -> None:
    bed = box.bed
    reader, writer = await connected(bed, target.format(box.sandbox_id))
    if target == NOTIFICATIONS:
        await asyncio.wait_for(reader.readuntil(b"pingTimeout"), PATIENCE_S)
        writer.write(masked(1, b"40" + json.dumps({"token": bed.key}).encode()))
        await asyncio.wait_for(reader.readuntil(b'40{"sid"'), PATIENCE_S)
    if kind == "continuations":
        writer.write(masked(2, b"", fin=False))
    with free_loop(bed.context.watchdog):
        await flood(reader, writer, FRAMES[kind])
        with bed.api() as api:
            assert api.get("/health").status_code == 200


async def test_every_one_of_very_many_tiny_frames_arrives_and_so_does_the_end(box: Box) -> None:
    count = 3_000
    command = f"stty raw -echo; echo ready; head -c {count} | wc -c"
    reader, writer = await connected(
        box.bed, f"/sandboxes/{box.sandbox_id}/terminal?command={command.replace(' ', '+')}"
    )
    await asyncio.wait_for(reader.readuntil(b"ready\n"), PATIENCE_S)
    writer.write(FRAMES["bytes"] * count + masked(8, (1000).to_bytes(2, "big")))
    await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    writer.close()
    left = "ps -e -o args= 2>/dev/null | grep -c '[h]ead -c 3000' || true"  # it ends with the last byte of its input
    await until(lambda: box.run(left).strip() == "0")


async def test_bytes_where_text_is_meant_end_the_connection_and_are_no_failure_of_ours(box: Box) -> None:
    reader, writer = await connected(box.bed, NOTIFICATIONS)
    await asyncio.wait_for(reader.readuntil(b"pingTimeout"), PATIENCE_S)
    writer.write(masked(2, b"a"))
    said = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    assert said.endswith(b"\x88\x02\x03\xe8"), "closed in order: 1000"
    writer.close()
