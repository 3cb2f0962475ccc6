"""Plain HTTP through the proxy: framing, connections kept, what concerns one hop only, and servers that misbehave."""

from __future__ import annotations

import asyncio
import subprocess

import httpx
import pytest

from paddock.http1.limits import MAX_INTERIM_RESPONSES
from tests.egress.conftest import Make, Serve
from tests.egress.outside import Sandbox
from tests.egress.sites import web
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
async def site(serve: Serve) -> str:
    return f"http://site.test:{(await serve(web)).port}"


def get(url: str, more: str = "", method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {url} HTTP/{version}\r\nHost: ignored.test\r\n{more}\r\n".encode()


async def test_a_server_sees_an_ordinary_request(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    hop = "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n"
    head, body = await talk.ask(get(f"{site}/head", hop + "Connection: X-Mine\r\nX-Mine: 1\r\nX-Yours: 2\r\n"))
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    expected = f"GET /head HTTP/1.1\r\nHost: {site.removeprefix('http://')}\r\nX-Yours: 2\r\n\r\n"
    assert body.decode() == expected


async def test_a_client_sees_an_ordinary_response(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    head, body = await talk.ask(get(f"{site}/hop"))
    assert head.lower() == "http/1.1 200 ok\r\nx-yours: 2\r\ncontent-length: 2\r\n\r\n"
    assert body == b"ok"


async def test_requests_share_a_connection_and_are_one_record(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    for path in ("/a", "/b?c=d", "/e"):
        assert (await talk.ask(get(site + path)))[1] == b"you asked for " + path.encode()
    assert sandbox.gate.ledger.totals.connections == 1
    assert sandbox.names.asked == ["site.test"]
    await talk.close()
    [record] = await sandbox.recorded(1)
    assert record.reason == "complete" and record.bytes_up > 0 and record.bytes_down > 3 * len("you asked for")


async def test_requests_sent_at_once_are_answered_in_turn(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/a") + get(f"{site}/b") + get(f"{site}/c", "Connection: close\r\n"))
    assert (await talk.rest()).count(b"you asked for /") == 3


async def test_a_request_for_another_host_goes_to_the_other_host(sandbox: Sandbox, serve: Serve, site: str) -> None:
    other = f"http://other.test:{(await serve(web)).port}"
    sandbox.names.say("other.test", ["127.0.0.1"])
    talk = await sandbox.dial()
    for url in (site, other, site):
        _, body = await talk.ask(get(f"{url}/head"))
        assert f"Host: {url.removeprefix('http://')}".encode() in body
    assert sandbox.gate.ledger.totals.connections == 3


async def test_a_connection_that_the_server_has_ended_meanwhile_is_made_again(sandbox: Sandbox, serve: Serve) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()

    server = await serve(once)
    talk = await sandbox.dial()
    for count in (1, 2):
        assert (await talk.ask(get(f"http://site.test:{server.port}/")))[1] == b"ok"
        assert len(server.accepted) == count
        [kept] = sandbox.gate._open
        await until(lambda kept=kept: not kept.stream.is_quiet())  # type: ignore[misc]


async def test_a_body_with_a_length_arrives(sandbox: Sandbox, site: str) -> None:
    body = bytes(range(256)) * 4096
    talk = await sandbox.dial()
    asking = asyncio.create_task(talk.ask(get(f"{site}/echo", f"Content-Length: {len(body)}\r\n", "POST") + body))
    assert (await asking)[1] == body


async def test_a_body_in_chunks_arrives_and_the_next_request_is_understood(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    chunks = b"5;ext=1\r\nhello\r\n1a\r\n" + b"x" * 26 + b"\r\n0\r\nX-Trailer: 1\r\n\r\n"
    _, body = await talk.ask(get(f"{site}/echo", "Transfer-Encoding: chunked\r\n", "PUT") + chunks)
    assert body == b"hello" + b"x" * 26
    assert (await talk.ask(get(f"{site}/next")))[1] == b"you asked for /next"


async def test_a_response_in_chunks_stays_one_for_a_new_client_and_is_plain_for_an_old_one(
    sandbox: Sandbox, site: str
) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/chunked", "Connection: close\r\n"))
    head, _, body = (await talk.rest()).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n", "as the server sent it"

    old = await sandbox.dial()
    await old.send(get(f"{site}/chunked", version="1.0"))
    head, _, body = (await old.rest()).partition(b"\r\n\r\n")
    assert b"chunked" not in head and b"Connection: close" in head
    assert body == b"hello world"


async def test_a_response_without_a_length_ends_with_its_connection(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/until-end"))
    head, _, body = (await talk.rest()).partition(b"\r\n\r\n")
    assert b"Connection: close" in head and body == b"all of it"


async def test_a_response_that_has_no_body_is_not_waited_for(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/page", method="HEAD"))
    assert "Content-Length: 19\r\n" in await talk.head()
    await talk.send(get(f"{site}/empty"))
    head = await talk.head()
    assert head.startswith("HTTP/1.1 204 ") and "length" not in head.lower()
    assert (await talk.ask(get(f"{site}/after")))[1] == b"you asked for /after"


async def test_a_client_that_waits_for_100_is_told_to_go_on(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/echo", "Expect: 100-continue\r\nContent-Length: 4\r\n", "POST"))
    assert (await talk.head()).startswith("HTTP/1.1 100 ")
    assert (await talk.ask(b"body"))[1] == b"body"


async def test_an_answer_that_comes_before_the_body_was_read_reaches_the_client(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    head, body = await talk.ask(get(f"{site}/early", "Content-Length: 1000000\r\n", "POST"))
    assert head.startswith("HTTP/1.1 413 ") and body == b"full"
    await talk.close()


async def test_a_websocket_goes_through(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n") + b"one")
    head = await talk.head()
    assert head.startswith("HTTP/1.1 101 ") and "Upgrade: websocket" in head and "X-Key: 1" in head
    assert await talk.read(6) == b"hi!ONE"
    await talk.send(b"two")
    assert await talk.read(3) == b"TWO"
    await talk.close()
    [record] = await sandbox.recorded(1)
    assert record.reason == "complete"


@pytest.mark.parametrize("path", ["/nothing", "/garbage"])
async def test_a_server_that_does_not_answer_is_a_bad_gateway(sandbox: Sandbox, site: str, path: str) -> None:
    talk = await sandbox.dial()
    head, body = await talk.ask(get(site + path))
    assert head.startswith("HTTP/1.1 502 ") and "X-Paddock-Egress: unreachable" in head
    assert b"site.test" in body


async def test_half_a_response_does_not_look_like_a_whole_one(sandbox: Sandbox, site: str) -> None:
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/cut"))
    assert "Content-Length: 1000" in await talk.head()
    with pytest.raises(ConnectionResetError):
        await talk.rest()
    [record] = await sandbox.recorded(1)
    assert "not sound HTTP" in record.reason


async def test_a_port_where_nobody_listens_and_a_name_that_nobody_has(sandbox: Sandbox, free_port: int) -> None:
    for url, why in ((f"http://site.test:{free_port}/", b"refused"), ("http://nobody.test/", b"no host")):
        head, body = await (await sandbox.dial()).ask(get(url))
        assert head.startswith("HTTP/1.1 502 ") and why in body
    records = await sandbox.recorded(2)
    assert [(one.allowed, one.address) for one in records] == [(True, None), (True, None)]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n",
        b"GET https://site.test/ HTTP/1.1\r\n\r\n",
        b"GET ftp://site.test/ HTTP/1.1\r\n\r\n",
        b"GET http://user:pw@site.test/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test:0/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test:99999/ HTTP/1.1\r\n\r\n",
        b"GET http://%31%32%37.0.0.1/ HTTP/1.1\r\n\r\n",
        b"GET  http://site.test/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test/ HTTP/2.0\r\n\r\n",
        b"GET http://site.test/#part HTTP/1.1\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nName : value\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nA: 1\r\n folded\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nA: 1\nB: 2\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"CONNECT site.test HTTP/1.1\r\n\r\n",
        b"CONNECT http://site.test:80 HTTP/1.1\r\n\r\n",
        b"CONNECT ::1:80 HTTP/1.1\r\n\r\n",
        b"CONNECT [fe80::1%lo]:80 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
async def test_what_is_malformed_is_refused_before_anything_is_connected(sandbox: Sandbox, request_: bytes) -> None:
    head, body = await (await sandbox.dial()).ask(request_)
    assert head.startswith("HTTP/1.1 400 ") and "X-Paddock-Egress: malformed" in head
    assert body
    assert sandbox.names.asked == [] and sandbox.gate.ledger.totals.connections == 0


@pytest.mark.parametrize("chunks", [b"zz\r\n", b"5\r\nhelloXX", b"-1\r\n", b"0x5\r\nhello\r\n", b"5" * 5000])
async def test_chunks_that_lie_are_not_passed_on(sandbox: Sandbox, site: str, chunks: bytes) -> None:
    talk = await sandbox.dial()
    head, _ = await talk.ask(get(f"{site}/echo", "Transfer-Encoding: chunked\r\n", "POST") + chunks + b"\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    [record] = await sandbox.recorded(1)
    assert record.reason == "the client's request was malformed"


async def test_a_body_that_goes_wrong_after_the_answer_has_begun_ends_without_a_second_answer(
    sandbox: Sandbox, serve: Serve
) -> None:
    async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst")
        await reader.read()

    server = await serve(eager)
    talk = await sandbox.dial()
    await talk.send(get(f"http://site.test:{server.port}/", "Transfer-Encoding: chunked\r\n", "POST"))
    assert (await talk.head()).startswith("HTTP/1.1 200 ")
    assert await talk.read(5) == b"first"
    await talk.send(b"no chunk\r\n")
    with pytest.raises(ConnectionResetError):
        await talk.rest()


async def test_curl_and_httpx_use_it(sandbox: Sandbox, site: str) -> None:
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "--max-time", "10", "-d", "from curl", f"{site}/echo"),
        env={"http_proxy": f"http://127.0.0.1:{sandbox.port}", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        assert (await curl.communicate())[0] == b"from curl"

    async def pieces() -> object:
        for piece in (b"from ", b"httpx"):
            yield piece

    async with httpx.AsyncClient(proxy=f"http://127.0.0.1:{sandbox.port}", trust_env=False) as client:
        assert (await client.post(f"{site}/echo", content=pieces())).content == b"from httpx"  # type: ignore[arg-type]
        assert (await client.get(f"{site}/chunked")).text == "hello world"


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(make: Make, site: str) -> None:
    sandbox = make()
    talk = await sandbox.dial()
    await talk.send(get(f"{site}/echo", "Content-Length: 1000\r\n", "POST") + b"a part")
    await until(lambda: sandbox.gate.open_connections == 1)
    await talk.close()
    await until(lambda: sandbox.proxy.connections == 0)
    assert sandbox.gate.open_connections == 0
    [record] = await sandbox.recorded(1)
    assert record.allowed


async def test_a_server_that_never_comes_to_its_answer_is_given_up(sandbox: Sandbox, serve: Serve) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        try:
            while sent < 1_000_000:
                writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)
                sent += 1000
                await writer.drain()
        except ConnectionError:
            pass

    server = await serve(endless)
    talk = await sandbox.dial()
    await talk.send(get(f"http://site.test:{server.port}/"))
    received = await talk.rest()
    assert received.count(b" 103 ") == MAX_INTERIM_RESPONSES and sent < 1_000_000
    assert b"HTTP/1.1 502 " in received and b"interim responses" in received
