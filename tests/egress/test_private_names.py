"""Private addresses behind names: opened by the operator's names only, whatever a client calls them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from paddock.egress.addresses import ClosedEntry, PrivateAccess, closed_entry
from paddock.egress.gate import EgressGate
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Rule
from paddock.errors import Forbidden
from tests.egress.conftest import Make, Serve
from tests.egress.outside import Names, Sandbox
from tests.egress.sites import echo

OPENED = EgressPolicy(private=("db.corp.test:5432", ".inner.test", "10.9.0.0/16"))


@pytest.mark.parametrize(
    ("address", "names", "port", "opened"),
    [
        ("10.1.2.3", ["db.corp.test"], 5432, True),
        ("10.1.2.3", ["db.corp.test"], 22, False),
        ("10.1.2.3", ["db.corp.test"], None, True),
        ("10.1.2.3", ["other.corp.test"], 5432, False),
        ("10.1.2.3", ["a.inner.test"], 80, True),
        ("fd12::5", ["inner.test"], 80, True),
        ("10.9.1.1", [], 80, True),
        ("10.8.1.1", [], 80, False),
        # The host, the cloud and what is reserved are not an admin's to open, by whatever name.
        *((address, ["a.inner.test"], 80, False) for address in ("127.0.0.1", "169.254.169.254", "::1", "10.7.7.7")),
        *((address, ["a.inner.test"], 80, False) for address in ("0.0.0.0", "224.0.0.1", "fd00:ec2::254", "240.0.0.1")),
        ("64:ff9b::a01:203", ["a.inner.test"], 80, True),
        ("64:ff9b::7f00:1", ["a.inner.test"], 80, False),
    ],
)
def test_what_an_admin_opened_for_a_sandbox(address: str, names: list[str], port: int | None, opened: bool) -> None:
    reach = PrivateAccess(host=lambda: [ip_network("10.7.7.7/32")])
    assert (reach.refusal(ip_address(address), OPENED, names=names, port=port) is None) is opened
    assert reach.refusal(ip_address(address), EgressPolicy(allow=("*", *OPENED.private)), names=names, port=port)


def test_a_name_in_the_settings_opens_private_addresses_and_the_host_but_never_metadata() -> None:
    reach = PrivateAccess(
        reachable=["box.corp.test"], host=lambda: [ip_network("10.7.7.7/32"), ip_network("198.41.0.4/32")]
    )
    for address in ("10.1.2.3", "10.7.7.7", "198.41.0.4", "127.0.1.1", "fd12::1"):
        assert reach.refusal(ip_address(address), EgressPolicy(), names=["box.corp.test"]) is None, address
        assert reach.refusal(ip_address(address), EgressPolicy(), names=["other.corp.test"]), address
        assert reach.refusal(ip_address(address), EgressPolicy()), address
    for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "fe80::1", "255.255.255.255"):
        assert reach.refusal(ip_address(address), EgressPolicy(), names=["box.corp.test"]), address


@pytest.mark.parametrize("place", ["registry:5000", "10.1.2.3:5000"])
def test_a_place_in_the_settings_with_a_port_opens_that_port_alone(place: str) -> None:
    reach = PrivateAccess(reachable=[place], host=tuple)
    address, names = ip_address("10.1.2.3"), ["registry"]
    assert reach.refusal(address, EgressPolicy(), names=names, port=5000) is None
    assert reach.refusal(address, EgressPolicy(), names=names, port=None) is None  # a DNS question
    assert "by the name that leads there" in (reach.refusal(address, EgressPolicy(), names=names, port=22) or "")


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        *((text, ClosedEntry.PRIVATE) for text in ("10.0.0.0/8", "10.1.2.3:80", "192.168.0.0/24")),
        *((text, ClosedEntry.PRIVATE) for text in ("100.64.0.1", "fd00::/8")),
        *((text, ClosedEntry.PRIVATE) for text in ("198.18.0.0/15", "192.0.2.1", "2001:db8::/32", "::ffff:10.0.0.1")),
        *((text, ClosedEntry.PRIVATE) for text in ("64:ff9b::a00:0/104", "2002:a00::/24", "[fc00::1]:443")),
        *((text, ClosedEntry.NEVER) for text in ("127.0.0.0/8", "169.254.169.254", "0.0.0.0", "::1", "fe80::/10")),
        *((text, ClosedEntry.NEVER) for text in ("255.255.255.255", "240.0.0.0/4", "168.63.129.16", "64:ff9b::7f00:1")),
        *((text, ClosedEntry.NEVER) for text in ("localhost", "a.localhost:80", "4000::/3", "fd00:ec2::254")),
        *((text, ClosedEntry.AROUND_PRIVATE) for text in ("8.0.0.0/5", "0.0.0.0/1", "172.0.0.0/8", "f000::/4")),
        *((text, None) for text in ("*", "0.0.0.0/0", "::/0", "0.0.0.0/0:443", "*:443", "2000::/3", "9.0.0.0/8")),
        *((text, None) for text in ("example.org", "*.internal", "64:ff9b::/96", "64:ff9b::808:808", "2606:4700::/32")),
    ],
)  # fmt: skip
def test_which_entries_name_what_is_not_public(entry: str, kind: ClosedEntry | None) -> None:
    assert closed_entry(Rule.parse(entry)) is kind


@pytest.mark.parametrize(
    ("own", "asked", "included"),
    [
        ("10.0.0.0/8", "10.1.0.0/16:80", True),
        ("10.0.0.0/8:80", "10.1.0.0/16", False),
        ("10.1.0.0/16", "10.0.0.0/8", False),
        (".corp.test", "*.corp.test", True),
        ("*.corp.test", ".corp.test", False),
        ("corp.test", "a.corp.test", False),
        (".corp.test", "a.corp.test:1", True),
        ("corp.test", "10.0.0.1", False),
        ("10.0.0.0/8", "*", False),
    ],
)
def test_one_entry_includes_another(own: str, asked: str, included: bool) -> None:
    assert Rule.parse(own).includes(Rule.parse(asked)) is included


async def test_a_client_cannot_call_an_address_by_a_name_that_was_opened() -> None:
    """Only a name that this server resolved to the address counts, not the one in a TLS or HTTP greeting."""
    names = Names()
    names.say("other.test", ["10.1.2.3"])
    names.say("db.corp.test", ["10.1.2.3"])
    policy = EgressPolicy(allow=("*", "0.0.0.0/0"), private=("db.corp.test",))
    gate = EgressGate(policy, reach=PrivateAccess(host=tuple), resolve=names)
    with pytest.raises(Forbidden, match="private"):
        await gate.connect(ip_address("10.6.6.6"), 80, 1, names=("db.corp.test",))
    with pytest.raises(Forbidden, match="private"):
        await gate.connect("other.test", 80, 1, meant=ip_address("10.1.2.3"))
    assert [str(one) for one in await gate.addresses("db.corp.test", None)] == ["10.1.2.3"]


async def test_a_service_whose_name_the_operator_opened_is_reached_by_it_and_on_no_other_port(
    make: Make, serve: Serve
) -> None:
    server, other = await serve(echo), await serve(echo)
    sandbox: Sandbox = make(EgressPolicy(allow=("registry",)), reachable=(f"registry:{server.port}",))
    sandbox.names.say("registry", ["127.0.0.1"])
    head, _ = await sandbox.connect(f"registry:{server.port}")
    assert head.startswith("HTTP/1.1 200 ")
    head, _ = await sandbox.connect(f"registry:{other.port}")
    assert head.startswith("HTTP/1.1 403 ")
    records = await sandbox.recorded(1)
    assert (records[0].allowed, records[0].host, records[0].address) == (False, "registry", "127.0.0.1")


async def test_a_refused_name_is_recorded_with_the_address_that_it_led_to(make: Make, serve: Serve) -> None:
    sandbox: Sandbox = make(EgressPolicy(allow=("db.corp.test",)), reachable=())
    server = await serve(echo)
    sandbox.names.say("db.corp.test", ["10.1.2.3"])
    head, _ = await sandbox.connect(f"db.corp.test:{server.port}")
    assert head.startswith("HTTP/1.1 403 ")
    [record] = await sandbox.recorded(1)
    assert (record.allowed, record.host, record.address) == (False, "db.corp.test", "10.1.2.3")
    assert "PADDOCK_EGRESS_REACHABLE" in record.reason
