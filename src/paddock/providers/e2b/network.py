"""Our egress policy in the words of E2B's network settings; what they cannot say exactly is refused."""

from __future__ import annotations

from typing import Any

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.rules import Rule
from paddock.providers.vendor.base import check_public, domain_entries

_ALL = "0.0.0.0/0"


def settings_of(policy: EgressPolicy) -> dict[str, Any]:
    """Arguments of a create. Ports of the machine are open to nobody but us: Paddock's own gateway decides."""
    check_public(policy)
    network: dict[str, Any] = {"allow_public_traffic": False}
    if policy.mode is EgressMode.NONE:
        return {"allow_internet_access": False, "network": network}
    allow, deny = [Rule.parse(text) for text in policy.allow], [Rule.parse(text) for text in policy.deny]
    if any(rule.port is not None for rule in (*allow, *deny)):
        raise errors.Unsupported("E2B has no egress rules for single ports: leave the ports out.")
    if any(rule.everything for rule in deny):
        return {"allow_internet_access": False, "network": network}
    if any(rule.domain is not None for rule in deny):
        raise errors.Unsupported("E2B denies egress to addresses only, not to domains.")
    if any(rule.everything for rule in allow):
        allow = []
    if allow and deny:
        raise errors.Unsupported("At E2B what is allowed wins over what is denied: give one of the two lists.")
    if allow:
        network |= {"allow_out": [entry for rule in allow for entry in _allowed(rule)], "deny_out": [_ALL]}
    elif deny:
        network["deny_out"] = [str(rule.network) for rule in deny]
    return {"network": network}


def _allowed(rule: Rule) -> list[str]:
    if rule.network is not None:
        return [str(rule.network)]
    return domain_entries(rule)
