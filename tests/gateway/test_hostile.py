"""Requests that two readers would read differently, and clients that take their time."""

from __future__ import annotations

import asyncio
import json

import pytest

from paddock.gateway import port_session
from tests.gateway.bed import Box
from tests.support.waiting import PATIENCE_S

SMUGGLED = b"GET /seen?smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 6",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Content-Length: -1",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding:\x0bchunked",),
        (" Transfer-Encoding: chunked",),
        ("X: a\nTransfer-Encoding: chunked",),
        ("X: a\rTransfer-Encoding: chunked",),
        ("X\x00: a",),
        ("X: a\x00b",),
        ("No colon",),
        (": no name",),
        ("Host: example.org",),
        ("E2b-Sandbox-Id: x", "E2b-Sandbox-Id: y", "E2b-Sandbox-Port: 1"),
    ],
)
async def test_an_ambiguous_head_is_refused_and_the_connection_closed(box: Box, headers: tuple[str, ...]) -> None:
    async with await box.dial() as peer:
        if headers[0].startswith("E2b"):
            lines = "\r\n".join((f"Host: localhost:{box.bed.port}", f"X-API-Key: {box.bed.key}", *headers))
            await peer.send(f"POST /seen HTTP/1.1\r\n{lines}\r\n\r\n".encode() + SMUGGLED)
        else:
            await peer.send(peer.head("POST /seen", *headers) + b"0\r\n\r\n" + SMUGGLED)
        assert (await peer.reply()).status == 400
        assert await peer.at_end()


@pytest.mark.parametrize(
    "line",
    [
        "GET  /seen HTTP/1.1",
        "GET /seen HTTP/1.1 ",
        "GET /seen HTTP/2.0",
        "GET /seen",
        "G(T /seen HTTP/1.1",
        "GET /se\x01en HTTP/1.1",
        "CONNECT example.org:80 HTTP/1.1",
        "GET http://other.example/seen HTTP/1.1",
    ],
)
async def test_an_odd_request_line_is_refused(box: Box, line: str) -> None:
    async with await box.dial() as peer:
        await peer.send(f"{line}\r\nHost: {box.host()}\r\nX-API-Key: {box.bed.key}\r\n\r\n".encode())
        assert (await peer.reply()).status == 400
        assert await peer.at_end()


@pytest.mark.parametrize(
    "host", ["3000-/x.localhost", "3000-a b.localhost", "3000-x.localhost:port", "3000-i@x.localhost"]
)
async def test_an_odd_host_is_refused(box: Box, host: str) -> None:
    async with await box.dial() as peer:
        await peer.send(f"GET /seen HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {box.bed.key}\r\n\r\n".encode())
        assert (await peer.reply()).status == 400


@pytest.mark.parametrize(
    "body", [b"5\nhello\r\n0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"x\r\n", b"-5\r\n", b"5 5\r\nhello\r\n"]
)
async def test_odd_chunks_end_the_connection(box: Box, body: bytes) -> None:
    async with await box.dial() as peer:
        await peer.send(peer.head("POST /seen", "Transfer-Encoding: chunked") + body + SMUGGLED)
        assert (await peer.reply()).status == 400
        assert await peer.at_end()


async def test_every_request_on_a_connection_is_judged_by_itself(box: Box) -> None:
    async with await box.dial() as peer:
        assert (await peer.ask("GET /seen")).status == 200
        await peer.send(peer.head("GET /seen", key=False))
        assert (await peer.reply()).status == 403
        await peer.send(peer.head("POST /seen", "Content-Length: 3") + b"abc" + peer.head("GET /seen", key=False))
        assert (await peer.reply()).status == 200
        assert (await peer.reply()).status == 403


async def test_headers_that_name_themselves_connection_headers_cannot_hide_what_we_add(box: Box) -> None:
    async with await box.dial() as peer:
        answer = await peer.ask("GET /seen", "Connection: X-Forwarded-For, Host, X-Drop", "X-Drop: 1")
    headers = {name.lower(): value for name, value in json.loads(answer.body)["headers"]}
    assert headers["host"] == box.host()
    assert "x-forwarded-for" in headers
    assert "x-drop" not in headers


async def test_a_head_that_is_too_long_is_refused(box: Box) -> None:
    for first in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        async with await box.dial() as peer:
            if first:
                await peer.send(first)
                await peer.reply()
            await peer.send(peer.head("GET /seen", "X-Long: " + "x" * 70_000))
            assert (await peer.reply()).status == 431
            assert await peer.at_end()
    async with await box.dial() as peer:
        await peer.ask("GET /seen")
        await peer.send(peer.head("GET /seen", "X-Long: " + "x" * 70_000))
        assert (await peer.reply()).status == 431


async def test_a_head_that_takes_too_long_is_given_up(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box.bed.settings, "head_timeout", 0.3)
    async with await box.dial() as dribbling, await box.dial() as later:
        assert (await later.ask("GET /seen")).status == 200
        await dribbling.send(b"GET /seen HTTP/1.1\r\n")
        await later.send(b"GET /seen HTTP/1.1\r\n")
        assert (await dribbling.reply()).status == 408
        assert (await later.reply()).status == 408


async def test_who_says_nothing_at_first_is_sent_away_soon(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box.bed.settings, "head_timeout", 0.3)
    async with await box.dial() as silent, await box.dial() as later:
        assert (await later.ask("GET /seen")).status == 200
        assert await silent.at_end()
        assert (await later.ask("GET /seen")).status == 200, "who has asked may be silent for longer"


async def test_slow_clients_do_not_hold_up_others(box: Box) -> None:
    slow = [await box.dial() for _ in range(100)]
    try:
        for peer in slow:
            await peer.send(peer.head("POST /seen", "Content-Length: 1000")[:-3])
        async with await box.dial() as quick, asyncio.timeout(PATIENCE_S):
            for _ in range(5):
                assert (await quick.ask("GET /seen")).status == 200
    finally:
        for peer in slow:
            peer.writer.close()


async def test_an_idle_connection_lives_as_long_as_the_api_says(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    assert port_session.KEEP_ALIVE_SECONDS > 600
    monkeypatch.setattr(port_session, "KEEP_ALIVE_SECONDS", 0.2)
    async with await box.dial() as peer:
        assert (await peer.ask("GET /seen")).status == 200
        assert await peer.at_end()


async def test_something_that_is_no_http_is_told_so_at_once(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert (await peer.reply()).status == 400
        assert await peer.at_end()
