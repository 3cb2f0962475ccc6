"""Which addresses no sandbox reaches, whatever its policy says: the host itself, and what only the host should see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from paddock.egress.interfaces import HostAddresses
from paddock.egress.names import Address, unmapped
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Network

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
# All that is public in IPv6 (2000::/3), and NAT64, which is judged by the IPv4 address inside.
PUBLIC6: tuple[str, ...] = ("2000::/3", "64:ff9b::/96")


class Reach:
    """Judges addresses. ``reachable`` and ``unreachable`` are the operator's exceptions, the second one wins.

    ``unreachable`` is for what the host cannot know of itself, such as the public address that a cloud maps to it.
    ``private_by_policy``: whether a sandbox's own allow list may open private addresses by naming them.
    """

    def __init__(
        self,
        *,
        reachable: Sequence[str] = (),
        unreachable: Sequence[str] = (),
        private_by_policy: bool = True,
        host: Callable[[], Collection[Network]] | None = None,
    ) -> None:
        self._reachable = _networks(reachable)
        self._unreachable = _networks(unreachable)
        self._private_by_policy = private_by_policy
        self._host = host or HostAddresses()
        self._never = tuple((why, _networks(ranges)) for why, ranges in NEVER)
        self._private = _networks(PRIVATE)
        self._public6 = _networks(PUBLIC6)

    def refusal(self, address: Address, policy: EgressPolicy) -> str | None:
        """Why this address is out of reach, or None. Addresses that carry another one inside are judged by both."""
        address = unmapped(address)
        if _within(address, self._unreachable):
            return "the operator has closed this address"
        if _within(address, self._reachable):
            return None
        for one in (address, *embedded(address)):
            if why := self._closed(one, policy):
                return why
        return None

    def is_self(self, local: str, remote: str) -> bool:
        """Whether a connection that was made goes to the host itself.

        The kernel gives a connection to an own address that same address as its source. This holds for addresses
        that came up after they were last read, too.
        """
        same = local.partition("%")[0] == remote.partition("%")[0]
        return same and not _within(_address(remote), self._reachable)

    def _closed(self, address: Address, policy: EgressPolicy) -> str | None:
        for why, ranges in self._never:
            if _within(address, ranges):
                return f"{why} is never reachable from a sandbox"
        if _within(address, self._host()):
            return "an address of the host itself is never reachable from a sandbox"
        if _within(address, self._private):
            if self._private_by_policy and policy.names_exactly(address, self._private):
                return None
            return "a private address is reachable only where the allow list names it"
        if isinstance(address, IPv6Address) and not _within(address, self._public6):
            return "a reserved address is never reachable from a sandbox"
        return None


def embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses to which a translator or a tunnel on the way might deliver an IPv6 one."""
    if isinstance(address, IPv4Address):
        return ()
    found: list[IPv4Address] = []
    number = int(address)
    low = IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    # IPv4-compatible, IPv4-translated, the well-known NAT64 prefix; and the one for local use, most often /96 too.
    if any(address in network for network in _LOW_32_BITS):
        found.append(low)
    if (number >> 32) & 0xFDFFFFFF == 0x00005EFE:  # ISATAP: ...:0:5efe:a.b.c.d or ...:200:5efe:a.b.c.d
        found.append(low)
    return tuple(found)


_LOW_32_BITS = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _networks(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(text) for text in texts)


def _address(text: str) -> Address:
    plain = text.partition("%")[0]
    return unmapped(IPv6Address(plain)) if ":" in plain else IPv4Address(plain)
