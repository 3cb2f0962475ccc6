"""Whether an entry of a sandbox's lists names a destination that is not public.

What may be reached is decided when a connection is made (:mod:`paddock.egress.addresses`), since only then a name has
an address. This check is for the user: an entry that could never work is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network

from paddock.egress.addresses import LOW_32_BITS, NEVER_NETWORKS, PRIVATE_NETWORKS, PUBLIC6_NETWORKS
from paddock.egress.rules import Network, Rule, inside

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
    """What this entry names that is not public, or None. Entries that the operator has opened (``reachable``) are
    public."""
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
