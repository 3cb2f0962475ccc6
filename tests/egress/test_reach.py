"""The host, its loopback, its neighbours and the metadata of clouds are out of reach, however they are written."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import ip_address, ip_network

import pytest

from paddock import errors
from paddock.egress.addresses import PrivateAccess
from paddock.egress.interfaces import HostAddresses, read_own_addresses
from paddock.egress.policy import EgressPolicy
from tests.egress.conftest import Make, Serve
from tests.egress.outside import Sandbox
from tests.egress.sites import echo
from tests.support.waiting import until

ANYTHING = EgressPolicy(allow=("*", "0.0.0.0/0", "::/0"))
NEVER = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "224.0.0.1"),
    *("255.255.255.255", "240.0.0.1", "168.63.129.16", "192.0.0.192", "100.100.100.200", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "100::1", "4000::1"),
    # The loopback and the metadata address, carried inside others.
    *("::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001:0:808:808::80ff:fffe", "64:ff9b:1::7f00:1"),
    *("2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a9fe:a9fe"),
]
PRIVATE = ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "198.18.0.1", "fc00::1", "fd12::1"]
PUBLIC = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.fixture
def reach() -> PrivateAccess:
    return PrivateAccess(
        host=lambda: [ip_network("198.41.0.4/32"), ip_network("10.7.7.7/32"), ip_network("2606:4700::1/128")]
    )


@pytest.mark.parametrize("address", NEVER)
def test_never(reach: PrivateAccess, address: str) -> None:
    assert reach.refusal(ip_address(address), ANYTHING)
    assert reach.refusal(ip_address(address), EgressPolicy(allow=(address,)))


@pytest.mark.parametrize("address", PUBLIC)
def test_public(reach: PrivateAccess, address: str) -> None:
    assert reach.refusal(ip_address(address), EgressPolicy()) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_reached_only_where_the_operator_opened_it(reach: PrivateAccess, address: str) -> None:
    assert reach.refusal(ip_address(address), EgressPolicy())
    assert reach.refusal(ip_address(address), ANYTHING)
    assert reach.refusal(ip_address(address), EgressPolicy(allow=(address,)))
    assert reach.refusal(ip_address(address), EgressPolicy(private=(address,))) is None
    assert PrivateAccess(reachable=[address], host=tuple).refusal(ip_address(address), EgressPolicy()) is None


@pytest.mark.parametrize("address", ["198.41.0.4", "10.7.7.7", "2606:4700::1", "64:ff9b::198.41.0.4", "2002:a07:707::"])
def test_the_hosts_own_addresses_stay_closed_public_or_named(reach: PrivateAccess, address: str) -> None:
    policy = EgressPolicy(allow=("*", "198.41.0.4", "2606:4700::1"), private=("10.0.0.0/8", "10.7.7.7"))
    assert reach.refusal(ip_address(address), policy)


def test_the_operator_opens_and_closes_and_closing_wins() -> None:
    reach = PrivateAccess(reachable=["127.0.0.0/8"], unreachable=["127.9.0.0/16", "203.0.112.1/32"], host=tuple)
    assert reach.refusal(ip_address("127.0.0.1"), EgressPolicy()) is None
    assert reach.refusal(ip_address("127.9.0.1"), EgressPolicy())
    assert reach.refusal(ip_address("203.0.112.1"), EgressPolicy())


def test_every_address_of_the_interfaces_is_known() -> None:
    known = read_own_addresses()
    assert ip_network("127.0.0.0/8") in known
    for _, name in socket.if_nameindex():
        for address in _addresses_of(name):
            assert any(ip_address(address) in network for network in known if network.version == 4), address


def test_addresses_are_read_again_after_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    answers = iter([frozenset([ip_network("192.0.2.1/32")]), frozenset([ip_network("192.0.2.2/32")])])
    monkeypatch.setattr("time.monotonic", lambda: now)
    addresses = HostAddresses(lambda: next(answers))
    assert addresses() == addresses() == frozenset([ip_network("192.0.2.1/32")])
    now = 104.0
    assert addresses() == frozenset([ip_network("192.0.2.2/32")])


async def test_nothing_leaves_when_the_hosts_addresses_cannot_be_read(make: Make) -> None:
    def broken() -> list[object]:
        raise errors.Unavailable("The addresses of the host cannot be read.")

    sandbox = make(reach=PrivateAccess(host=broken))  # type: ignore[arg-type]
    assert (await sandbox.connect("8.8.8.8:443"))[0].startswith("HTTP/1.1 403 ")
    sandbox.names.say("some.test", ["8.8.8.8"])
    assert (await sandbox.connect("some.test:443"))[0].startswith("HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0", "0.0.0.0", "localhost", "LOCALHOST."),
        *(
            "a.localhost",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "１２７.０.０.１",
        ),
        *("169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "metadata.test", "mixed.test", "mapped.test"),
    ],
)
async def test_no_spelling_leads_through_the_proxy(make: Make, serve: Serve, host: str) -> None:
    sandbox: Sandbox = make(ANYTHING, reachable=())
    server = await serve(echo)
    sandbox.names.say("metadata.test", ["169.254.169.254"])
    sandbox.names.say("mixed.test", ["127.0.0.1", "::1", "10.0.0.1"])
    sandbox.names.say("mapped.test", ["::ffff:127.0.0.1"])
    head, talk = await sandbox.connect(f"{host}:{server.port}")
    assert head.startswith("HTTP/1.1 403 ") and "X-Paddock-Egress: denied" in head
    assert b"egress policy" in await talk.rest()
    plain = await sandbox.dial()
    head, _ = await plain.ask(f"GET http://{host}:{server.port}/ HTTP/1.1\r\n\r\n".encode())
    assert head.startswith("HTTP/1.1 403 ")
    assert server.accepted == []
    records = await sandbox.recorded(2)
    assert [(one.allowed, one.address is not None, one.bytes_up) for one in records] == [(False, True, 0)] * 2
    assert sandbox.gate.ledger.totals.denied == 2


async def test_an_address_of_the_host_that_came_up_a_moment_ago_is_not_reached(make: Make, serve: Serve) -> None:
    """The list of addresses may be some seconds old. The connection itself shows that it goes nowhere."""
    stale = PrivateAccess(host=tuple)
    stale._never = ()  # as if the loopback were an address that nobody knows yet
    sandbox: Sandbox = make(reach=stale)
    reached = []

    async def listening(reader: object, writer: object) -> None:
        reached.append(await reader.read())  # type: ignore[attr-defined]

    server = await serve(listening)
    head, _ = await sandbox.connect(f"site.test:{server.port}")
    assert head.startswith("HTTP/1.1 403 ")
    await until(lambda: len(server.accepted) == 1)
    assert b"".join(reached) == b""


async def test_a_name_that_changes_its_mind_is_connected_to_what_was_checked(make: Make, serve: Serve) -> None:
    server = await serve(echo)
    sandbox: Sandbox = make(reachable=("127.0.0.1/32",))
    sandbox.names.say("rebind.test", ["127.0.0.1"], ["127.0.0.2"])
    talk = await sandbox.tunnel(f"rebind.test:{server.port}")
    assert sandbox.names.asked == ["rebind.test"]
    await talk.send(b"x")
    assert await talk.read(1) == b"x"
    assert (await sandbox.connect(f"rebind.test:{server.port}"))[0].startswith("HTTP/1.1 403 ")


async def test_of_several_answers_only_those_in_reach_are_tried(make: Make, serve: Serve) -> None:
    server = await serve(echo)
    sandbox: Sandbox = make(reachable=("127.0.0.1/32",))
    sandbox.names.say("several.test", ["10.0.0.1", "169.254.169.254", "127.0.0.1"])
    talk = await sandbox.tunnel(f"several.test:{server.port}")
    await talk.close()
    [record] = await sandbox.recorded(1)
    assert record.address == "127.0.0.1"


async def test_a_refused_name_is_not_even_resolved(make: Make) -> None:
    sandbox: Sandbox = make(EgressPolicy(allow=("good.test",)))
    assert (await sandbox.connect("the-secret-is-42.evil.test:443"))[0].startswith("HTTP/1.1 403 ")
    assert sandbox.names.asked == []


def _addresses_of(name: str) -> list[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return []
    return [socket.inet_ntoa(answer[20:24])]
