"""One entry of an allow or deny list: a domain, an address or a range, each optionally with a port."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from paddock import errors
from paddock.http1.hosts import Address, parse_host, parse_port

Network = IPv4Network | IPv6Network

_MAX_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Rule:
    text: str
    port: int | None = None
    network: Network | None = None
    domain: str | None = None
    """Without a network and a domain the rule covers everything."""
    itself: bool = True
    subdomains: bool = False

    @classmethod
    def parse(cls, text: object) -> Rule:
        if not isinstance(text, str) or not text or len(text) > _MAX_LENGTH or text != text.strip():
            raise _wrong(text, "an entry is a short text without spaces around it")
        if "://" in text:
            raise _wrong(text, "leave the scheme and the path out, as in example.org:443")
        host, port = _split_port(text)
        if host == "*":
            return cls(text, port)
        if "/" in host or ":" in host or host.replace(".", "").isdigit():
            return cls(text, port, network=_network(text, host))
        itself, subdomains = True, False
        if host.startswith("*."):
            host, itself, subdomains = host[2:], False, True
        elif host.startswith("."):
            host, subdomains = host[1:], True
        return cls(text, port, domain=_domain(text, host), itself=itself, subdomains=subdomains)

    @property
    def everything(self) -> bool:
        return self.network is None and self.domain is None

    def covers_name(self, name: str) -> bool:
        if self.domain is None:
            return self.everything
        return (self.itself and name == self.domain) or (self.subdomains and name.endswith("." + self.domain))

    def covers_address(self, address: Address) -> bool:
        if self.network is None:
            return self.everything
        return address.version == self.network.version and address in self.network

    def includes(self, other: Rule) -> bool:
        """Whether this rule covers everything that the other one covers."""
        if self.port is not None and self.port != other.port:
            return False
        if self.everything or other.everything:
            return self.everything
        if self.network is not None:
            return other.network is not None and inside(other.network, self.network)
        if self.domain is None or other.domain is None:
            return False
        below = self.subdomains and other.domain.endswith("." + self.domain)
        if other.domain != self.domain:
            return below
        return (self.itself or not other.itself) and (self.subdomains or not other.subdomains)

    def covers_port(self, port: int | None) -> bool:
        """A port of None is not known yet: a rule for one port does not cover it."""
        return self.port is None or self.port == port


def inside(one: Network, other: Network) -> bool:
    if isinstance(one, IPv4Network):
        return isinstance(other, IPv4Network) and one.subnet_of(other)
    return isinstance(other, IPv6Network) and one.subnet_of(other)


def _split_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _wrong(text, "brackets enclose an IPv6 address or range, as in [2001:db8::/32]:443")
        return host, _port(text, rest[1:]) if rest else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, _port(text, port)
    return text, None


def _port(text: str, port: str) -> int:
    try:
        return parse_port(port)
    except errors.MalformedRequest as trouble:
        raise _wrong(text, "a port is a number from 1 to 65535") from trouble


def _network(text: str, host: str) -> Network:
    try:
        network = ip_network(host)
    except ValueError as trouble:
        raise _wrong(text, str(trouble)) from trouble
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        return IPv4Network((network.network_address.ipv4_mapped, network.prefixlen - 96))
    if isinstance(network, IPv6Network) and network.network_address.scope_id:
        raise _wrong(text, "an address with a zone cannot be reached from a sandbox")
    return network


def _domain(text: str, host: str) -> str:
    try:
        name = parse_host(host)
    except errors.MalformedRequest as trouble:
        raise _wrong(text, trouble.message) from trouble
    if not isinstance(name, str):
        raise _wrong(text, f"write this address as {name}")
    return name


def _wrong(text: object, why: str) -> errors.Invalid:
    shown = text[:80] if isinstance(text, str) else type(text).__name__
    return errors.Invalid(
        f"{shown!r} is not an egress rule: {why}. "
        "A rule is example.org, *.example.org, .example.org, *, an address or a range, each optionally with :port.",
        details={"rule": shown},
    )
