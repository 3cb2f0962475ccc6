"""CONNECT: bytes both ways, each side ending on its own, cut when the policy says so."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddock.egress import gate as gate_module
from paddock.egress.dial import Dialled, dial
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressTotals
from paddock.http1.hosts import Address
from tests.egress.conftest import Make, Serve
from tests.egress.outside import Sandbox, Talk
from tests.egress.sites import echo
from tests.support.waiting import PATIENCE_S, until

MIB = 1 << 20


async def test_bytes_go_both_ways_and_a_client_that_has_ended_still_reads(sandbox: Sandbox, serve: Serve) -> None:
    server = await serve(echo)
    talk = await sandbox.tunnel(f"site.test:{server.port}")
    await talk.send(b"hello \xff\x00")
    assert await talk.read(8) == b"hello \xff\x00"
    talk.end()
    assert await talk.rest() == b"|end"
    [record] = await sandbox.recorded(1)
    assert (record.host, record.address, record.port) == ("site.test", "127.0.0.1", server.port)
    assert (record.allowed, record.reason, record.bytes_up, record.bytes_down) == (True, "complete", 8, 12)
    assert sandbox.proxy.report().totals == EgressTotals(1, 0, 8, 12)


async def test_a_server_that_has_ended_still_reads(sandbox: Sandbox, serve: Serve) -> None:
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def ends_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        got.set_result(await reader.read())

    server = await serve(ends_first)
    talk = await sandbox.tunnel(f"site.test:{server.port}")
    assert await talk.rest() == b"bye"
    await talk.send(b"one more thing")
    talk.end()
    async with asyncio.timeout(PATIENCE_S):
        assert await got == b"one more thing"


async def test_bytes_sent_before_the_answer_are_not_lost(sandbox: Sandbox, serve: Serve) -> None:
    server = await serve(echo)
    talk = await sandbox.dial()
    await talk.send(f"CONNECT site.test:{server.port} HTTP/1.1\r\n\r\nearly bird".encode())
    assert (await talk.head()).startswith("HTTP/1.1 200 ")
    assert await talk.read(10) == b"early bird"


async def test_tls_passes_untouched(
    sandbox: Sandbox, serve: Serve, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def secret(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"secret " + await reader.readexactly(4))
        await writer.drain()

    server = await asyncio.start_server(secret, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        talk = await sandbox.tunnel(f"site.test:{port}")
        async with asyncio.timeout(PATIENCE_S):
            await talk.writer.start_tls(ssl.create_default_context(cafile=str(cert)), server_hostname="site.test")
        await talk.send(b"1234")
        assert await talk.read(11) == b"secret 1234"
        await talk.close()


async def test_curl_gets_https_through_it(sandbox: Sandbox, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(page, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://site.test:{server.sockets[0].getsockname()[1]}/"
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--max-time", "10", "--cacert", str(cert), "-x", f"http://127.0.0.1:{sandbox.port}", url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert await curl.communicate() == (b"page", b"")


async def test_a_big_transfer_is_whole_and_takes_no_memory(sandbox: Sandbox, serve: Serve) -> None:
    size = 256 * MIB
    block = bytes(range(256)) * 4096

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(size // len(block)):
            writer.write(block)
            await writer.drain()

    server = await serve(pour)
    talk = await sandbox.tunnel(f"site.test:{server.port}")
    before = _resident()
    got = 0
    async with asyncio.timeout(PATIENCE_S):
        while data := await talk.reader.read(MIB):
            assert data[0] == got % 256 and data[-1] == (got + len(data) - 1) % 256
            got += len(data)
    assert got == size
    assert _resident() - before < 32 * MIB
    assert sandbox.gate.ledger.totals.bytes_down == size


async def test_a_reader_that_does_not_read_holds_up_the_sender_and_nobody_else(sandbox: Sandbox, serve: Serve) -> None:
    poured = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        while True:
            writer.write(bytes(MIB))
            await writer.drain()
            poured += MIB

    flood, quick = await serve(pour), await serve(echo)
    stuck = await sandbox.tunnel(f"site.test:{flood.port}")
    other = await sandbox.tunnel(f"site.test:{quick.port}")
    seen = -1
    while seen != poured:  # until the kernel's buffers are full, which takes as long as it takes
        seen = poured
        for _ in range(100):
            await other.send(b"ping")
            assert await other.read(4) == b"ping"
    assert seen < 64 * MIB
    before = sandbox.gate.ledger.totals.bytes_down
    await stuck.read(8 * MIB)
    assert sandbox.gate.ledger.totals.bytes_down > before


async def test_a_reset_is_passed_on_as_a_reset(sandbox: Sandbox, serve: Serve) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    server = await serve(rude)
    talk = await sandbox.tunnel(f"site.test:{server.port}")
    await talk.send(b"x")
    with pytest.raises(ConnectionResetError):
        await talk.rest()
    [record] = await sandbox.recorded(1)
    assert record.reason == "reset by the server"


async def test_a_live_update_cuts_what_is_no_longer_allowed_and_leaves_the_rest(make: Make, serve: Serve) -> None:
    sandbox = make(EgressPolicy(allow=("*.good.test", "*.bad.test")))
    for name in ("a.good.test", "b.bad.test"):
        sandbox.names.say(name, ["127.0.0.1"])
    server = await serve(echo)
    good, bad = [await sandbox.tunnel(f"{name}:{server.port}") for name in ("a.good.test", "b.bad.test")]
    assert sandbox.gate.open_connections == 2

    sandbox.proxy.update(EgressPolicy(allow=("*.good.test",)))

    with pytest.raises(ConnectionResetError):
        await bad.rest()
    await good.send(b"still here")
    assert await good.read(10) == b"still here"
    [record] = await sandbox.recorded(1)
    assert record.host == "b.bad.test" and record.reason.startswith("cut by a change of the policy")
    refused = (await sandbox.connect(f"b.bad.test:{server.port}"))[0]
    why = f"Paddock did not connect this sandbox to b.bad.test port {server.port}: "
    assert refused.startswith(f"HTTP/1.1 403 Forbidden: {why}"), "pip shows nothing else of it"
    assert sandbox.gate.open_connections == 1

    sandbox.proxy.update(EgressPolicy(EgressMode.NONE))
    with pytest.raises(ConnectionResetError):
        await good.rest()


async def test_an_update_holds_for_a_connection_that_is_just_being_made(
    make: Make, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = make()
    server = await serve(echo)

    async def meanwhile(addresses: Sequence[Address], port: int, seconds: float) -> Dialled:
        dialled = await dial(addresses, port, seconds)
        sandbox.proxy.update(EgressPolicy(deny=("site.test",)))
        return dialled

    monkeypatch.setattr(gate_module, "dial", meanwhile)
    head, _ = await sandbox.connect(f"site.test:{server.port}")
    assert head.startswith("HTTP/1.1 403 ")
    assert sandbox.gate.open_connections == 0


async def test_closing_the_proxy_ends_every_tunnel_and_leaves_no_descriptor(make: Make, serve: Serve) -> None:
    server = await serve(echo)
    before = _descriptors()
    sandbox = make()
    talks: list[Talk] = [await sandbox.tunnel(f"site.test:{server.port}") for _ in range(5)]
    assert _descriptors() > before
    await sandbox.close()
    assert all([not await _ended(talk) for talk in talks])
    await until(lambda: _descriptors() <= before)
    assert [record.reason for record in sandbox.records] == ["closed with the proxy"] * 5


async def _ended(talk: Talk) -> bytes:
    try:
        return await talk.rest()
    except ConnectionResetError:
        return b""


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=site.test", "-addext", "subjectAltName=DNS:site.test"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
