"""Parses a host as written into one canonical name or one address.

Every spelling that a resolver accepts (``0x7f.1``, ``2130706433``, full-width digits, trailing dots) is normalized
here, so that the rules and the resolver agree on the destination.
"""

from __future__ import annotations

import re
import socket
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from paddock import errors

Address = IPv4Address | IPv6Address
Host = str | IPv4Address | IPv6Address
"""A canonical name (lower case, ASCII, no trailing dot) or an address."""

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# If the last label is a number, resolvers parse the whole as an IPv4 address, or fail (WHATWG URL, 3.5).
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME_LENGTH = 253


def parse_host(text: str) -> Host:
    """Parse a host; brackets around an IPv6 address are removed."""
    if not text or len(text) > 2 * _MAX_NAME_LENGTH:
        raise errors.MalformedRequest("The host name is empty or too long.")
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    name = _ascii(text).lower().removesuffix(".")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _ipv4(name)
    return _name(name, text)


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise errors.MalformedRequest(f"{text[:20]!r} is not a port: 1 to 65535.")
    return int(text)


def parse_authority(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """Parse ``host:port``; the port may be omitted if there is a default."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, ""
    if ":" in host and not host.startswith("["):
        raise errors.MalformedRequest("An IPv6 address needs brackets before a port: [2001:db8::1]:443.")
    if port:
        return parse_host(host), parse_port(port)
    if default_port is None:
        raise errors.MalformedRequest("The port is missing: write host:port.")
    return parse_host(host), default_port


def unmapped(address: Address) -> Address:
    """``::ffff:192.0.2.1`` is ``192.0.2.1`` to every rule, and to the kernel."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as trouble:
        raise errors.MalformedRequest(f"{text[:80]!r} is not a host name: {trouble}.") from trouble


def _ipv4(text: str) -> IPv4Address:
    try:
        # inet_aton accepts what getaddrinfo accepts: hexadecimal, octal, fewer than four parts.
        return IPv4Address(socket.inet_aton(text))
    except OSError as trouble:
        raise errors.MalformedRequest(f"{text[:80]!r} is not an IPv4 address.") from trouble


def _ipv6(text: str) -> Address:
    if "%" in text:
        raise errors.MalformedRequest("An address with a zone cannot be reached from a sandbox.")
    try:
        return unmapped(IPv6Address(text))
    except AddressValueError as trouble:
        raise errors.MalformedRequest(f"{text[:80]!r} is not an IPv6 address.") from trouble


def _name(name: str, text: str) -> str:
    if len(name) > _MAX_NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise errors.MalformedRequest(f"{text[:80]!r} is not a host name.")
    return name
