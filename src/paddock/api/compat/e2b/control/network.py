"""E2B's network settings in the words of Paddock's egress policy.

Theirs: what matches ``allowOut`` goes out, of the rest what matches ``denyOut`` does not. Ours: what the deny list
matches does not go out, and where there is an allow list nothing but what it matches. Each of theirs has one of ours
that says exactly the same; what there is nothing for is refused, not left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from paddock.api.compat.e2b.control.requests import Egress, Network
from paddock.api.compat.e2b.errors import E2BError
from paddock.egress.addresses import ClosedEntry, closed_entry
from paddock.egress.rules import Rule
from paddock.errors import Invalid
from paddock.models import MAX_RULES, EgressRules

_ALL = ip_network("0.0.0.0/0")
_EVERYTHING = "*"
_HOST = re.compile(r"[A-Za-z0-9._\[\]:${}-]{1,255}", re.ASCII)

_Range = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class NetworkLists:
    """The lists as the client sent them, stored to be shown unchanged."""

    allow_out: tuple[str, ...] = ()
    deny_out: tuple[str, ...] = ()
    internet: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {"allowOut": list(self.allow_out), "denyOut": list(self.deny_out), "internet": self.internet}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> NetworkLists:
        return cls(tuple(kept["allowOut"]), tuple(kept["denyOut"]), kept["internet"])


def lists_of(wanted: Egress | None, internet: bool | None) -> NetworkLists:
    """Validates the lists. ``internet=False`` is equivalent to a ``denyOut`` of everything."""
    if wanted is None:
        return NetworkLists(internet=internet)
    _check_supported(wanted)
    lists = NetworkLists(tuple(wanted.allow_out or ()), tuple(wanted.deny_out or ()), internet)
    for entry in lists.deny_out:
        if _range(entry) is None:
            raise E2BError(400, f"invalid denied CIDR {entry[:200]}")
    names = [entry for entry in lists.allow_out if _range(entry) is None]
    for name in names:
        if not _is_domain(name):
            raise E2BError(400, f"invalid allowed address {name[:200]}")
    if names and not _holds_all(lists.deny_out):
        raise E2BError(
            400,
            "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all "
            "other traffic.",
        )
    return lists


def rules_of(lists: NetworkLists) -> EgressRules:
    """The equivalent egress rules."""
    if _holds_all(lists.allow_out):
        allow, deny = [], []
    elif lists.internet is False or _holds_all(lists.deny_out):
        allow = [str(_range(entry) or entry) for entry in lists.allow_out]
        deny = [] if allow else [_EVERYTHING]
    else:
        # Everything may go out but what is denied and not allowed: addresses, all of them, so they can be taken out.
        allowed = [found for entry in lists.allow_out if (found := _range(entry)) is not None]
        denied = [found for entry in lists.deny_out if (found := _range(entry)) is not None]
        allow, deny = [], [str(one) for one in _without(denied, allowed)]
    if max(len(allow), len(deny)) > MAX_RULES:
        raise E2BError(400, f"the network rules come to more than {MAX_RULES} entries")
    return EgressRules(allow=allow, deny=deny, private=_private_of(lists))


def _private_of(lists: NetworkLists) -> list[str]:
    """Private entries of ``allowOut``. Not each is in the policy's allow list, and each needs an opening by an
    admin."""
    ranges = [found for entry in lists.allow_out if (found := _range(entry)) is not None]
    closed = [
        str(one) for one in ranges if closed_entry(Rule.parse(str(one))) in (ClosedEntry.PRIVATE, ClosedEntry.NEVER)
    ]
    if len(closed) > MAX_RULES:
        raise E2BError(400, f"the network rules come to more than {MAX_RULES} entries")
    return closed


def shown(lists: NetworkLists, *, public: bool, host_mask: str | None) -> dict[str, Any]:
    """The network object of a sandbox's details."""
    found: dict[str, Any] = {"allowPublicTraffic": public}
    if lists.allow_out:
        found["allowOut"] = list(lists.allow_out)
    if lists.deny_out:
        found["denyOut"] = list(lists.deny_out)
    if host_mask is not None:
        found["maskRequestHost"] = host_mask
    return found


def host_mask_of(network: Network | None) -> str | None:
    mask = network.mask_request_host if network else None
    if mask is None or _HOST.fullmatch(mask):
        return mask
    if not mask.isascii():
        raise E2BError(400, f"mask request host '{mask[:200]}' is not ASCII. Please use ASCII characters only.")
    raise E2BError(400, f"mask request host is not valid: {mask[:200]}")


def _check_supported(wanted: Egress) -> None:
    missing = {
        "rules": "Network transform rules are",
        "egress_proxy": "An egress proxy of your own is",
        "dns_servers": "DNS servers of your own are",
        "https_ports": "HTTPS ports other than 443 are",
    }
    for name, what in missing.items():
        if getattr(wanted, name, None):
            raise E2BError(400, f"{what} not available on this server")


def _range(entry: str) -> _Range | None:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_domain(entry: str) -> bool:
    try:
        rule = Rule.parse(entry)
    except Invalid:
        return False
    return rule.everything or rule.domain is not None


def _holds_all(entries: Iterable[str]) -> bool:
    return any(_range(entry) == _ALL for entry in entries)


def _without(ranges: Sequence[_Range], taken_out: Iterable[_Range]) -> list[_Range]:
    """These ranges without the others, as few ranges as possible."""
    left = list(ranges)
    for hole in taken_out:
        left = [piece for one in left for piece in _minus(one, hole)]
        if len(left) > 4 * MAX_RULES:
            raise E2BError(400, f"the network rules come to more than {MAX_RULES} entries")
    return left


def _minus(one: _Range, hole: _Range) -> list[_Range]:
    if isinstance(one, IPv4Network) and isinstance(hole, IPv4Network):
        if one.subnet_of(hole):
            return []
        return list(one.address_exclude(hole)) if hole.subnet_of(one) else [one]
    if isinstance(one, IPv6Network) and isinstance(hole, IPv6Network):
        if one.subnet_of(hole):
            return []
        return list(one.address_exclude(hole)) if hole.subnet_of(one) else [one]
    return [one]
