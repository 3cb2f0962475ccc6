"""Large bodies: through, whole, and never in memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.bed import Box, resident_bytes

GIB = 1 << 30
BLOCK = bytes(range(256)) * 256
ROOM = 48 << 20
"""What a process may grow for reasons of its own while it moves twenty times as much."""


@contextmanager
def flat_memory() -> Iterator[None]:
    before, highest, over = resident_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not over.wait(0.05):
            highest = max(highest, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    assert highest - before < ROOM, f"grew by {(highest - before) >> 20} MiB"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/long", pytest.param("/long-chunks", marks=pytest.mark.exhaustive)])
def test_a_gigabyte_comes_out_with_flat_memory(local_box: Box, path: str) -> None:
    with flat_memory(), local_box.visitor() as visitor, visitor.stream("GET", f"{path}?{GIB}") as answer:
        assert sum(len(piece) for piece in answer.iter_raw(1 << 18)) == GIB


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_gigabyte_goes_in_with_flat_memory(local_box: Box, chunked: bool) -> None:
    def blocks() -> Iterator[bytes]:
        for _ in range(GIB // len(BLOCK)):
            yield BLOCK

    headers = {} if chunked else {"Content-Length": str(GIB)}
    with flat_memory(), local_box.visitor() as visitor:
        seen = visitor.post("/seen", content=blocks(), headers=headers).json()
    digest = hashlib.sha256()
    for _ in range(GIB // len(BLOCK)):
        digest.update(BLOCK)
    assert (seen["size"], seen["sha256"]) == (GIB, digest.hexdigest())


def test_megabytes_pass_on_every_provider(box: Box) -> None:
    data = BLOCK * 160
    with box.visitor() as visitor:
        assert visitor.post("/seen", content=data).json()["sha256"] == hashlib.sha256(data).hexdigest()
        assert len(visitor.get(f"/long?{len(data)}").content) == len(data)


async def test_a_client_that_does_not_read_holds_up_its_server(local_box: Box) -> None:
    """Instead of having us collect what nobody wants yet."""
    async with await local_box.dial() as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with flat_memory():
            await peer.send(peer.head(f"GET /long?{GIB}"))
            async with await local_box.dial() as other:
                for _ in range(50):
                    assert (await other.ask("GET /seen")).status == 200
