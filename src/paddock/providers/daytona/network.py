"""Our egress policy in the words of Daytona's network settings; what they cannot say exactly is refused."""

from __future__ import annotations

from typing import Any

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.rules import Rule
from paddock.providers.vendor.base import check_public, domain_entries


def settings_of(policy: EgressPolicy) -> dict[str, Any]:
    """Arguments of a create."""
    check_public(policy)
    allow, deny = [Rule.parse(text) for text in policy.allow], [Rule.parse(text) for text in policy.deny]
    if policy.mode is EgressMode.NONE or any(rule.everything and rule.port is None for rule in deny):
        return {"network_block_all": True}
    if deny:
        raise errors.Unsupported("Daytona knows no egress rules that deny: give a list of what is allowed.")
    if any(rule.port is not None for rule in allow):
        raise errors.Unsupported("Daytona has no egress rules for single ports: leave the ports out.")
    if not allow or any(rule.everything for rule in allow):
        return {}
    networks = [str(rule.network) for rule in allow if rule.network is not None]
    domains = [entry for rule in allow if rule.domain is not None for entry in domain_entries(rule)]
    if networks and domains:
        raise errors.Unsupported("Daytona allows egress to networks or to domains, not to both at once.")
    return {"network_allow_list": ",".join(networks)} if networks else {"domain_allow_list": ",".join(domains)}
