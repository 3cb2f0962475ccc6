"""HTTP through the gateway is HTTP: whatever a server and a client say to each other directly."""

from __future__ import annotations

import asyncio
import hashlib
import json

import httpx
import pytest

from tests.gateway.bed import Box
from tests.support.waiting import PATIENCE_S


def test_a_request_arrives_as_it_was_sent(box: Box) -> None:
    with box.visitor() as visitor:
        answer = visitor.post("/seen?a=1&b=%20x&c", content=b"some body", headers={"X-Own": "yes"})
    seen = answer.json()
    headers = {name.lower(): value for name, value in seen["headers"]}
    assert (seen["method"], seen["target"]) == ("POST", "/seen?a=1&b=%20x&c")
    assert (seen["size"], seen["sha256"]) == (9, hashlib.sha256(b"some body").hexdigest())
    assert (headers["host"], headers["x-own"]) == (box.host(), "yes")


async def test_many_requests_on_one_connection(box: Box) -> None:
    async with await box.dial() as peer:
        numbers = [json.loads((await peer.ask("GET /seen")).body)["connection"] for _ in range(5)]
        posted = json.loads((await peer.ask("POST /seen", "Content-Length: 2", body=b"hi")).body)
    assert len(numbers) == 5
    assert posted["size"] == 2


async def test_one_connection_serves_the_api_and_sandboxes_in_turn(box: Box) -> None:
    """As a proxy does that carries many clients on one connection."""
    async with await box.dial() as peer:
        for _ in range(3):
            await peer.send(f"GET /health HTTP/1.1\r\nHost: localhost:{box.bed.port}\r\n\r\n".encode())
            assert json.loads((await peer.reply()).body)["status"] == "ok"
            assert json.loads((await peer.ask("GET /seen")).body)["target"] == "/seen"
            assert (await peer.ask("GET /seen", port=3999)).status == 502


async def test_what_a_client_sends_ahead_is_answered_in_its_order(box: Box) -> None:
    async with await box.dial() as peer:
        health = f"GET /health HTTP/1.1\r\nHost: localhost:{box.bed.port}\r\n\r\n".encode()
        posted = peer.head("POST /seen?2", "Content-Length: 3") + b"abc"
        put = peer.head("PUT /seen?3", "Transfer-Encoding: chunked") + b"2\r\nhi\r\n0\r\n\r\n"
        await peer.send(peer.head("GET /seen?1") + health + posted + put + health + peer.head("GET /seen?4"))
        said = [json.loads((await peer.reply()).body) for _ in range(6)]
    assert [reply.get("target", reply.get("status")) for reply in said] == [
        "/seen?1", "ok", "/seen?2", "/seen?3", "ok", "/seen?4",
    ]  # fmt: skip


async def test_an_api_request_with_a_chunked_body_ends_where_it_ends(box: Box) -> None:
    body = json.dumps({"sandbox_id": box.sandbox_id, "command": "echo hi"}).encode()
    async with await box.dial() as peer:
        await peer.send(
            f"POST /sandboxes/run-command HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {box.bed.key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            + peer.head("GET /seen?after")
        )
        assert json.loads((await peer.reply()).body)["stdout"] == "hi\n"
        assert json.loads((await peer.reply()).body)["target"] == "/seen?after"


async def test_chunks_go_both_ways(box: Box) -> None:
    async with await box.dial() as peer:
        uploaded = await peer.ask(
            "POST /seen",
            "Transfer-Encoding: chunked",
            body=b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n",
        )
        assert json.loads(uploaded.body)["sha256"] == hashlib.sha256(b"hello world").hexdigest()
        assert (await peer.ask("GET /chunks")).body == b"one,two,three"
        assert json.loads((await peer.ask("GET /seen")).body)["target"] == "/seen"


async def test_events_pass_as_soon_as_they_are_sent(box: Box) -> None:
    """Each is only sent after the one before was seen here."""
    async with await box.dial() as peer, await box.dial() as other:
        await peer.send(peer.head("GET /events?4"))
        await peer.reader.readuntil(b"data: 0\n\n\r\n")
        for number in (1, 2, 3):
            assert (await other.ask("GET /next")).status == 200
            async with asyncio.timeout(PATIENCE_S):
                await peer.reader.readuntil(b"data: %d\n\n\r\n" % number)


async def test_a_body_is_sent_only_after_the_server_asked_for_it(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.send(peer.head("POST /seen", "Content-Length: 4", "Expect: 100-continue"))
        assert (await peer.reply()).status == 100
        await peer.send(b"body")
        assert json.loads((await peer.reply()).body)["size"] == 4


async def test_answers_without_a_body(box: Box) -> None:
    async with await box.dial() as peer:
        head = await peer.ask("HEAD /seen")
        assert head.status == 200 and int(head.headers["content-length"]) > 0
        assert (await peer.ask("GET /empty")).status == 204
        unchanged = await peer.ask("GET /unchanged")
        assert (unchanged.status, unchanged.headers["content-length"]) == (304, "10")
        assert (await peer.ask("GET /seen")).status == 200


@pytest.mark.parametrize(("path", "body"), [("/until-end", b"until the end"), ("/once", b"once"), ("/old", b"old")])
async def test_a_server_that_closes_its_connection(box: Box, path: str, body: bytes) -> None:
    async with await box.dial() as peer:
        answer = await peer.ask(f"GET {path}")
        assert answer.body == body
        if path == "/until-end":
            assert answer.headers["connection"] == "close"
            assert await peer.at_end()
        else:  # where it ended is known, so the client's own connection can go on
            assert (await peer.ask("GET /seen")).status == 200


async def test_a_client_of_http_1_0_gets_no_chunks(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.send(f"GET /chunks HTTP/1.0\r\nHost: {box.host()}\r\nX-API-Key: {box.bed.key}\r\n\r\n".encode())
        answer = await peer.reply()
    assert "transfer-encoding" not in answer.headers
    assert answer.body == b"one,two,three"


async def test_a_client_that_asks_to_close_is_closed(box: Box) -> None:
    async with await box.dial() as peer:
        answer = await peer.ask("GET /seen", "Connection: close")
        assert answer.headers["connection"] == "close"
        assert await peer.at_end()


async def test_an_answer_that_comes_before_the_body_was_read(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.send(peer.head("POST /early", f"Content-Length: {64 << 20}") + bytes(100_000))
        answer = await peer.reply()
        assert (answer.status, answer.body) == (413, b"no thank")
        assert await peer.at_end()


async def test_a_second_answer_to_one_request_reaches_nobody(box: Box) -> None:
    async with await box.dial() as peer:
        assert (await peer.ask("GET /two")).body == b"1"
        assert json.loads((await peer.ask("GET /seen")).body)["target"] == "/seen"


@pytest.mark.parametrize("path", ["/nonsense", "/nothing"])
def test_a_server_that_speaks_no_http_is_a_bad_gateway(box: Box, path: str) -> None:
    with box.visitor() as visitor:
        answer = visitor.get(path)
    assert answer.status_code == 502
    assert answer.json()["message"].startswith("The server on this port ")
    assert answer.json()["code"] == 502


@pytest.mark.parametrize("path", ["/half", "/half-chunk"])
def test_half_an_answer_is_not_passed_off_as_a_whole_one(box: Box, path: str) -> None:
    with box.visitor() as visitor, pytest.raises(httpx.HTTPError):
        visitor.get(path)


async def test_a_client_that_has_said_its_last_still_gets_its_answer(box: Box) -> None:
    async with await box.dial() as peer:
        await peer.send(peer.head("GET /end"))
        peer.writer.write_eof()
        assert (await peer.reply()).body == b"read to the end"


async def test_a_server_learns_that_its_client_left(box: Box) -> None:
    async with await box.dial() as peer, await box.dial() as other:
        await peer.send(peer.head("GET /wait"))
        while json.loads((await other.ask("GET /left")).body)[-1:] != ["waiting"]:
            pass
        peer.writer.close()
        while json.loads((await other.ask("GET /left")).body)[-1:] != ["left"]:
            pass


async def test_heads_that_come_in_pieces(box: Box) -> None:
    async with await box.dial() as peer:
        head = peer.head("GET /seen")
        for at in range(0, len(head), 7):
            await peer.send(head[at : at + 7])
            await asyncio.sleep(0)
        assert (await peer.reply()).status == 200
