"""Daytona's network settings in the words of Paddock's egress policy.

Theirs: everything goes out, or nothing, or only what is on a list of address ranges and one of domains. What was asked
for is kept as it was said and shown again so.
"""

from __future__ import annotations

from ipaddress import ip_network

from paddock.api.compat.daytona.control.requests import NetworkSettings
from paddock.api.compat.daytona.errors import DaytonaError
from paddock.egress.rules import Rule
from paddock.errors import Invalid
from paddock.models import MAX_RULES, EgressRules
from paddock.store.records import SandboxRow

_EVERYTHING = "*"
_KEY = "daytona"


def rules_of(settings: NetworkSettings) -> EgressRules:
    """The equivalent egress rules. Refuses settings that have no equivalent."""
    ranges = [_range(entry) for entry in _entries(settings.network_allow_list)]
    domains = [_domain(entry) for entry in _entries(settings.domain_allow_list)]
    allow = [*ranges, *domains]
    if settings.network_block_all and allow:
        raise DaytonaError(400, "networkBlockAll and an allow list exclude each other")
    if len(allow) > MAX_RULES:
        raise DaytonaError(400, f"the allow lists come to more than {MAX_RULES} entries")
    return EgressRules(allow=allow, deny=[_EVERYTHING] if settings.network_block_all else [])


def kept(settings: NetworkSettings) -> dict[str, object]:
    return {_KEY: settings.model_dump(by_alias=True, include=set(NetworkSettings.model_fields))}


def shown(sandbox: SandboxRow) -> NetworkSettings:
    """The stored settings; for a sandbox configured otherwise, those that its egress rules correspond to."""
    said = (sandbox.network or {}).get(_KEY)
    if said is not None:
        return NetworkSettings.model_validate(said)
    blocked = sandbox.egress["mode"] == "none" or _EVERYTHING in sandbox.egress["deny"]
    allow = list(sandbox.egress["allow"])
    ranges = [entry for entry in allow if _is_range(entry)]
    domains = [entry for entry in allow if not _is_range(entry)]
    return NetworkSettings(
        network_block_all=blocked and not allow,
        network_allow_list=",".join(ranges) or None,
        domain_allow_list=",".join(domains) or None,
    )


def changed(before: NetworkSettings, asked: NetworkSettings) -> NetworkSettings:
    """Settings that are not given stay; blocking everything and an allow list replace each other."""
    given = asked.model_dump(exclude_none=True)
    after = before.model_copy(update=given)
    if asked.network_block_all:
        return NetworkSettings(network_block_all=True)
    if asked.network_allow_list or asked.domain_allow_list:
        return after.model_copy(update={"network_block_all": False})
    return after


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


def _range(entry: str) -> str:
    try:
        return str(ip_network(entry, strict=False))
    except ValueError:
        raise DaytonaError(400, f"networkAllowList: {entry[:200]!r} is not an address range (CIDR)") from None


def _domain(entry: str) -> str:
    try:
        rule = Rule.parse(entry)
    except Invalid as problem:
        raise DaytonaError(400, f"domainAllowList: {problem.message}") from None
    if rule.domain is None:
        raise DaytonaError(400, f"domainAllowList: {entry[:200]!r} is not a domain")
    return entry


def _is_range(entry: str) -> bool:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True
