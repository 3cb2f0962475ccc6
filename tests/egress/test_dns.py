"""The name server of a sandbox: names that are allowed, addresses that are in reach, nothing else."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest

from paddock.egress.dns import AAAA, HTTPS, A, DnsCode, DnsRelay
from paddock.egress.gate import EgressGate
from paddock.egress.policy import EgressPolicy
from paddock.egress.traffic import Limits
from tests.egress.conftest import Make
from tests.egress.outside import Names
from tests.support.waiting import PATIENCE_S, until

MX, PTR, ANY = 15, 12, 255


def question(name: str, kind: int = A, number: int = 7, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part)
    return struct.pack("!6H", number, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def read(answer: bytes | None) -> tuple[DnsCode, list[str]]:
    assert answer is not None
    number, flags, asked, count, _, _ = struct.unpack_from("!6H", answer)
    assert number == 7 and flags & 0x8080 == 0x8080 and asked == 1
    found, at = [], answer.index(b"\0", 12) + 5
    for _ in range(count):
        size = struct.unpack_from("!H", answer, at + 10)[0]
        found.append(str(ip_address(answer[at + 12 : at + 12 + size])))
        at += 12 + size
    assert at == len(answer)
    return DnsCode(flags & 15), found


class Relay:
    def __init__(self, gate: EgressGate, names: Names, limits: Limits) -> None:
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp_at, self.tcp_at = self.udp.getsockname(), self.tcp.getsockname()
        self.gate, self.names = gate, names
        self.relay = DnsRelay([self.udp], [self.tcp], gate, limits)

    async def ask(self, name: str, kind: int = A) -> tuple[DnsCode, list[str]]:
        return read(await self.relay.answer(question(name, kind)))


@pytest.fixture
async def relay(make: Make) -> AsyncIterator[Relay]:
    sandbox = make(EgressPolicy(allow=(".good.test", "only-https.test:443"), deny=("bad.good.test",)), reachable=())
    relay = Relay(sandbox.gate, sandbox.names, Limits(lookups=4))
    sandbox.names.say("good.test", ["93.184.216.34", "2606:2800::1", "10.0.0.1", "127.0.0.1", "fe80::1%eth0"])
    sandbox.names.say("only-https.test", ["93.184.216.35"])
    sandbox.names.say("inner.good.test", ["10.0.0.1", "169.254.169.254"])
    relay.relay.start()
    yield relay
    await relay.relay.close()


async def test_each_family_is_answered_with_its_own_addresses_that_are_in_reach(relay: Relay) -> None:
    assert await relay.ask("good.test") == (DnsCode.OK, ["93.184.216.34"])
    assert await relay.ask("GOOD.test", AAAA) == (DnsCode.OK, ["2606:2800::1"])
    assert await relay.ask("good.test", HTTPS) == (DnsCode.OK, [])
    assert await relay.ask("only-https.test") == (DnsCode.OK, ["93.184.216.35"])
    assert relay.gate.learned.names_of(ip_address("93.184.216.34")) == ("good.test",)


@pytest.mark.parametrize("name", ["evil.test", "bad.good.test", "localhost", "a.localhost", "secret-42.evil.test"])
async def test_a_name_that_is_refused_does_not_exist_and_is_asked_of_nobody(relay: Relay, name: str) -> None:
    assert await relay.ask(name) == (DnsCode.NO_SUCH_NAME, [])
    assert await relay.ask(name, AAAA) == (DnsCode.NO_SUCH_NAME, [])
    assert relay.names.asked == []
    assert relay.gate.ledger.totals.denied == 1
    [record] = relay.gate.ledger.latest
    assert (record.host, record.port, record.allowed) == (name, 53, False)


async def test_a_name_that_leads_only_inside_does_not_exist(relay: Relay) -> None:
    assert await relay.ask("inner.good.test") == (DnsCode.NO_SUCH_NAME, [])


async def test_what_does_not_exist_what_fails_and_what_is_not_understood(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await relay.ask("missing.good.test") == (DnsCode.NO_SUCH_NAME, [])
    assert await relay.ask("127.0.0.1") == (DnsCode.NO_SUCH_NAME, [])
    for kind in (MX, PTR, ANY):
        assert await relay.ask("good.test", kind) == (DnsCode.NOT_IMPLEMENTED, [])
    assert read(await relay.relay.answer(question("good.test", flags=0x2800)))[0] == DnsCode.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 11,
        question("good.test", flags=0x8000),
        question("good.test")[:-1],
        question("good.test")[:14],
        struct.pack("!6H", 7, 0, 0, 0, 0, 0),
        struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\x01\0\x01",
        struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\x01\xff\0\0\x01\0\x01",
    ],
)
async def test_what_is_no_question_gets_no_answer(relay: Relay, data: bytes) -> None:
    assert await relay.relay.answer(data) is None


async def test_it_answers_datagrams_and_streams(relay: Relay) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(relay.udp_at)
        client.send(b"nonsense")
        client.send(question("good.test"))
        async with asyncio.timeout(PATIENCE_S):
            assert read(await loop.sock_recv(client, 600)) == (DnsCode.OK, ["93.184.216.34"])
    reader, writer = await asyncio.open_connection(*relay.tcp_at)
    asked = question("good.test")
    writer.write((struct.pack("!H", len(asked)) + asked) * 2)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            size = struct.unpack("!H", await reader.readexactly(2))[0]
            assert read(await reader.readexactly(size)) == (DnsCode.OK, ["93.184.216.34"])
    writer.close()


async def test_many_addresses_fit_one_datagram(relay: Relay) -> None:
    relay.names.say("many.good.test", [f"93.184.216.{number}" for number in range(100)])
    answer = await relay.relay.answer(question("many.good.test"))
    assert answer is not None and len(answer) <= 512
    assert len(read(answer)[1]) == 16


async def test_questions_past_the_limit_are_dropped(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()
    waiting = 0

    async def slow(name: str) -> list[str]:
        nonlocal waiting
        waiting += 1
        await release.wait()
        return ["93.184.216.34"]

    monkeypatch.setattr(relay.gate, "_resolve", slow)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(relay.udp_at)
        for _ in range(20):
            client.send(question("good.test"))
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: waiting >= 4)
            release.set()
            for _ in range(4):
                await asyncio.get_running_loop().sock_recv(client, 600)
        assert waiting == 4
