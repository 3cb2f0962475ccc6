"""Large uploads go from the socket into the file by the kernel, and nobody can tell but by the time they take."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from paddock.gateway.asgi_extensions import MIN_DIRECT_BYTES, DirectBody
from tests.gateway.bed import Bed, Box
from tests.support.waiting import PATIENCE_S

LARGE = os.urandom(1 << 16) * 80  # five megabytes


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many bytes each upload had that asked for the kernel's way."""
    seen: list[int | None] = []
    original = DirectBody.copy_to

    async def copy_to(self: DirectBody, file: int) -> int | None:
        seen.append(await original(self, file))
        return seen[-1]

    monkeypatch.setattr(DirectBody, "copy_to", copy_to)
    return seen


@pytest.fixture
def wire(local_bed: Bed) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", local_bed.port, timeout=60)
    yield connection
    connection.close()


def put(wire: HTTPConnection, box: Box, path: str, body: bytes, **headers: str) -> HTTPResponse:
    wire.request("PUT", f"/sandboxes/{box.sandbox_id}/files?path={path}", body, {"X-API-Key": box.bed.key, **headers})
    return wire.getresponse()


def digest(box: Box, path: str) -> str:
    return box.run(f"sha256sum {path}").split()[0]


def test_it_arrives_whole_and_the_connection_goes_on(
    wire: HTTPConnection, local_box: Box, copied: list[int | None]
) -> None:
    for turn in range(3):
        body = LARGE + str(turn).encode()
        answer = put(wire, local_box, "/workspace/large", body)
        assert (answer.status, b"Wrote 52428" in answer.read()) == (200, True)
        assert digest(local_box, "/workspace/large") == hashlib.sha256(body).hexdigest()
    assert copied == [len(LARGE) + 1] * 3


def test_a_small_one_is_not_worth_it(wire: HTTPConnection, local_box: Box, copied: list[int | None]) -> None:
    assert put(wire, local_box, "/workspace/small", b"x" * (MIN_DIRECT_BYTES - 1)).read()
    assert copied == []


def test_a_chunked_one_is_read_in_pieces(wire: HTTPConnection, local_box: Box, copied: list[int | None]) -> None:
    wire.request(
        "PUT",
        f"/sandboxes/{local_box.sandbox_id}/files?path=/workspace/chunked",
        iter([LARGE, LARGE]),
        {"X-API-Key": local_box.bed.key},
        encode_chunked=True,
    )
    assert wire.getresponse().status == 200
    assert digest(local_box, "/workspace/chunked") == hashlib.sha256(LARGE + LARGE).hexdigest()
    assert copied == []


def test_a_client_that_waits_to_be_asked_is_asked(local_box: Box, copied: list[int | None]) -> None:
    head = (
        f"PUT /sandboxes/{local_box.sandbox_id}/files?path=/workspace/expected HTTP/1.1\r\nHost: localhost\r\n"
        f"X-API-Key: {local_box.bed.key}\r\nContent-Length: {len(LARGE)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", local_box.bed.port), timeout=PATIENCE_S) as client:
        client.sendall(head.encode())
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(LARGE)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    assert digest(local_box, "/workspace/expected") == hashlib.sha256(LARGE).hexdigest()
    assert copied == [len(LARGE)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a sandbox a disk of its own")
def test_a_disk_that_is_full_is_told_and_the_connection_goes_on(wire: HTTPConnection, local_bed: Bed) -> None:
    box = local_bed.create(resources={"disk_mb": 64})
    try:
        answer = put(wire, box, "/workspace/too-much", b"x" * (96 << 20))
        assert answer.status == 507
        assert b"full" in answer.read().lower()
        assert put(wire, box, "/workspace/fits", LARGE).status == 200
        assert "too-much" not in box.run("ls -A /workspace")
    finally:
        box.delete()


def test_where_it_may_not_be_written_the_answer_comes_all_the_same(wire: HTTPConnection, local_box: Box) -> None:
    answer = put(wire, local_box, "/proc/nobody", LARGE)
    assert 400 <= answer.status < 500
    answer.read()
    assert put(wire, local_box, "/workspace/after", b"fine").status == 200


def test_a_client_that_leaves_in_the_middle_leaves_the_old_file(local_box: Box) -> None:
    local_box.run("echo old > /workspace/kept")
    head = (
        f"PUT /sandboxes/{local_box.sandbox_id}/files?path=/workspace/kept HTTP/1.1\r\nHost: localhost\r\n"
        f"X-API-Key: {local_box.bed.key}\r\nContent-Length: {2 * len(LARGE)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", local_box.bed.port), timeout=PATIENCE_S) as client:
        client.sendall(head.encode() + LARGE)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)  # until the server has seen it, too
    assert local_box.run("cat /workspace/kept; ls -A /workspace | grep -c writing") == "old\n0\n"
