"""Which addresses are not public, and who may open them: the operator's setting, an admin for one sandbox, or no one.

A sandbox's own lists only choose among public addresses, because any user of the sandbox may change them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from paddock.egress.interfaces import HostAddresses
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Network, Rule, inside
from paddock.http1.hosts import Address, unmapped

NEVER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the loopback of the host", ("127.0.0.0/8", "::1/128")),
    ("an unspecified address", ("0.0.0.0/8", "::/128")),
    ("a link-local address", ("169.254.0.0/16", "fe80::/10", "fec0::/10")),
    ("a multicast address", ("224.0.0.0/4", "ff00::/8")),
    # Azure, Oracle, Alibaba, AWS and Google serve metadata or host agents at addresses that are not link-local.
    (
        "a metadata address of a cloud",
        ("168.63.129.16/32", "192.0.0.0/24", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128"),
    ),
    ("a reserved address", ("240.0.0.0/4", "192.88.99.0/24", "100::/64", "5f00::/16")),
)
NO_NAME_OPENS = frozenset(
    {
        "an unspecified address",
        "a link-local address",
        "a multicast address",
        "a metadata address of a cloud",
        "a reserved address",
    }
)
PRIVATE: tuple[str, ...] = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "192.0.2.0/24",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "fc00::/7",
    "2001:2::/48",
    "2001:db8::/32",
    "3fff::/20",
)
# All public IPv6 space (2000::/3), and NAT64, which is judged by the embedded IPv4 address.
PUBLIC6: tuple[str, ...] = ("2000::/3", "64:ff9b::/96")


_PRIVATE_WHY = (
    "a private address is reachable only where the operator opened it, by the name that leads there or by its network "
    "(PADDOCK_EGRESS_REACHABLE, or an admin for one sandbox)"
)


class PrivateAccess:
    """Judges addresses. ``reachable`` and ``unreachable`` are the operator's exceptions; the latter takes precedence.

    ``reachable`` holds networks and names. A name opens the addresses to which it was resolved, unless they are in a
    range that no name can open (``NO_NAME_OPENS``): whoever controls the name could point it at the cloud's metadata
    service. ``unreachable`` is for what the host cannot detect, such as the public address that a cloud maps to it.
    """

    def __init__(
        self,
        *,
        reachable: Sequence[str] = (),
        unreachable: Sequence[str] = (),
        host: Callable[[], Collection[Network]] | None = None,
    ) -> None:
        rules = [Rule.parse(text) for text in reachable]
        self._reachable = [rule for rule in rules if rule.network is not None]
        self._reachable_names = [rule for rule in rules if rule.domain is not None]
        self._unreachable = _networks(unreachable)
        self._host = host or HostAddresses()
        self._never = NEVER_NETWORKS

    @property
    def has_names(self) -> bool:
        return bool(self._reachable_names)

    def refusal(
        self, address: Address, policy: EgressPolicy, *, names: Collection[str] = (), port: int | None = None
    ) -> str | None:
        """Why this address may not be reached, or None. An address that embeds another one is judged by both.

        ``names``: those which this server itself resolved to the address, never a name that a client claims. A port of
        None means any port, as in a DNS query.
        """
        address = unmapped(address)
        if _within(address, self._unreachable):
            return "the operator has closed this address"
        if any(rule.covers_address(address) and _asked(rule, port) for rule in self._reachable):
            return None
        named = any(rule.covers_name(name) and _asked(rule, port) for rule in self._reachable_names for name in names)
        for one in (address, *embedded(address)):
            why = self._closed(one, named=named)
            if why is not None and not (why == _PRIVATE_WHY and policy.opens(one, names, port)):
                return why
        return None

    def is_self(self, local: str, remote: str, names: Collection[str] = ()) -> bool:
        """Whether an established connection goes to the host itself and is not allowed.

        For a connection to one of its own addresses the kernel uses the same address as source. That also detects
        addresses assigned after the host's addresses were last read.
        """
        if local.partition("%")[0] != remote.partition("%")[0]:
            return False
        if any(rule.covers_name(name) for rule in self._reachable_names for name in names):
            return False
        address = _address(remote)
        return not any(rule.covers_address(address) for rule in self._reachable)

    def _closed(self, address: Address, *, named: bool) -> str | None:
        for why, ranges in self._never:
            if _within(address, ranges) and not (named and why not in NO_NAME_OPENS):
                return f"{why} is never reachable from a sandbox"
        if _within(address, self._host()) and not named:
            return "an address of the host itself is never reachable from a sandbox"
        if _within(address, PRIVATE_NETWORKS):
            return None if named else _PRIVATE_WHY
        if isinstance(address, IPv6Address) and not _within(address, PUBLIC6_NETWORKS):
            return "a reserved address is never reachable from a sandbox"
        return None


def _asked(rule: Rule, port: int | None) -> bool:
    return port is None or rule.covers_port(port)


def embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses to which a translator or tunnel might deliver an IPv6 address."""
    if isinstance(address, IPv4Address):
        return ()
    found: list[IPv4Address] = []
    number = int(address)
    low = IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    # IPv4-compatible, IPv4-translated, the well-known NAT64 prefix; and the local-use one, usually /96 too.
    if any(address in network for network in LOW_32_BITS):
        found.append(low)
    if (number >> 32) & 0xFDFFFFFF == 0x00005EFE:  # ISATAP: ...:0:5efe:a.b.c.d or ...:200:5efe:a.b.c.d
        found.append(low)
    return tuple(found)


NEVER_NETWORKS = tuple((why, tuple(ip_network(text) for text in ranges)) for why, ranges in NEVER)
PRIVATE_NETWORKS = tuple(ip_network(text) for text in PRIVATE)
PUBLIC6_NETWORKS = tuple(ip_network(text) for text in PUBLIC6)
LOW_32_BITS = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _networks(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(text) for text in texts)


def _address(text: str) -> Address:
    plain = text.partition("%")[0]
    return unmapped(IPv6Address(plain)) if ":" in plain else IPv4Address(plain)


_IN_USE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
_IN_USE_NETWORKS = tuple(ip_network(text) for text in _IN_USE)
"""Private networks in use, unlike ranges for documentation and tests, which lie among public ones."""


class ClosedEntry(StrEnum):
    """What an entry of an allow list names that is not public."""

    PRIVATE = "private"
    """A private network, or a part of one: an admin may open it for a sandbox."""
    AROUND_PRIVATE = "around private"
    """A range that includes a private network but is not everything."""
    NEVER = "never"
    """The host itself, metadata, link-local and reserved ranges: only the operator's setting opens them."""


def closed_entry(rule: Rule, reachable: Sequence[Rule] = ()) -> ClosedEntry | None:
    """What this entry of a list names that is not public, or None. Entries that the operator has opened (``reachable``)
    are public.

    What may be reached is decided when a connection is made, since only then a name has an address. This is for the
    user: an entry that could never work is refused with a reason.
    """
    if any(own.includes(rule) for own in reachable):
        return None
    if rule.domain is not None:
        return ClosedEntry.NEVER if rule.domain == "localhost" or rule.domain.endswith(".localhost") else None
    if rule.network is None:
        return None
    found = [_closed_network(one) for one in (rule.network, *_embedded_networks(rule.network))]
    return next((kind for kind in reversed(ClosedEntry) if kind in found), None)


def _closed_network(network: Network) -> ClosedEntry | None:
    if network.prefixlen == 0 or any(inside(public, network) for public in PUBLIC6_NETWORKS):
        return None  # "everything" means everything public
    if any(inside(network, area) for _, ranges in NEVER_NETWORKS for area in ranges):
        return ClosedEntry.NEVER
    if any(inside(network, area) for area in PRIVATE_NETWORKS):
        return ClosedEntry.PRIVATE
    if any(inside(area, network) for area in _IN_USE_NETWORKS):
        return ClosedEntry.AROUND_PRIVATE
    if network.version == 6 and not any(inside(network, public) for public in PUBLIC6_NETWORKS):
        return ClosedEntry.NEVER
    return None


def _embedded_networks(network: Network) -> list[IPv4Network]:
    """The IPv4 networks to which a translator or tunnel might deliver traffic for this IPv6 network."""
    if isinstance(network, IPv4Network):
        return []
    number, length = int(network.network_address), network.prefixlen
    areas = [area for area in LOW_32_BITS if length > 96 and inside(network, area)]
    found = [IPv4Network((number & 0xFFFFFFFF, length - 96)) for _ in areas[:1]]
    if inside(network, IPv6Network("2002::/16")) and length > 16:
        found.append(IPv4Network(((number >> 80) & 0xFFFFFFFF, min(length - 16, 32)), strict=False))
    return found
