"""All addresses of the host itself, read from the kernel over netlink and cached briefly."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network

from paddock import errors
from paddock.egress.rules import Network

KEPT_SECONDS = 3.0
_NETLINK_TIMEOUT_S = 2.0
_RECEIVE_BYTES = 1 << 16

_ERROR, _DONE = 2, 3
_NEW_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 20, 22, 24, 26
_REQUEST_DUMP = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST = 1
_TABLE_LOCAL = 255
_SOL_NETLINK, _STRICT_CHECK = 270, 12
_NO_IPV6 = (errno.ENOENT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
_LOCAL, _BROADCAST, _ANYCAST = 2, 3, 4

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")


class HostAddresses:
    """Callable that returns the host's current addresses: those of its interfaces, and other routes to itself."""

    def __init__(self, read: Callable[[], frozenset[Network]] | None = None) -> None:
        self._read = read or read_own_addresses
        self._until = 0.0
        self._known: frozenset[Network] = frozenset()

    def __call__(self) -> frozenset[Network]:
        now = time.monotonic()
        if now >= self._until:
            self._known = self._read()
            self._until = now + KEPT_SECONDS
        return self._known


def read_own_addresses() -> frozenset[Network]:
    """Raises rather than guesses: without this list no connection may be allowed."""
    try:
        found = set(_addresses())
        found.update(_local_routes())
    except (OSError, struct.error) as trouble:
        raise errors.Unavailable(f"The addresses of the host cannot be read: {trouble}.") from trouble
    return frozenset(found)


def _addresses() -> Iterator[Network]:
    for body in _dump(_GET_ADDRESS, _NEW_ADDRESS):
        values = dict(_attributes(body[8:]))
        # On a point-to-point link IFA_LOCAL is this host's address, and IFA_ADDRESS the peer's.
        value = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
        if value is not None:
            yield _network(body[0], value, len(value) * 8)


def _local_routes() -> Iterator[Network]:
    """Also finds whole ranges routed to the host, and a router's anycast addresses."""
    for body in _dump(_GET_ROUTE, _NEW_ROUTE):
        if body[7] not in (_LOCAL, _BROADCAST, _ANYCAST):
            continue
        for kind, value in _attributes(body[12:]):
            if kind == _RTA_DST:
                yield _network(body[0], value, body[1])


def _network(family: int, value: bytes, bits: int) -> Network:
    address = IPv4Address(value) if family == socket.AF_INET else IPv6Address(value)
    return ip_network((address, bits), strict=False)


def _dump(ask: int, answer: int) -> Iterator[bytes]:
    """All messages of one dump, for both families."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as link:
            link.settimeout(_NETLINK_TIMEOUT_S)
            # A router may have a million routes. Kernels since 4.20 then send only those of the table "local".
            with contextlib.suppress(OSError):
                link.setsockopt(_SOL_NETLINK, _STRICT_CHECK, 1)
            body = struct.pack("=B3xB7x", family, _TABLE_LOCAL) if ask == _GET_ROUTE else struct.pack("=B7x", family)
            link.sendto(_HEADER.pack(_HEADER.size + len(body), ask, _REQUEST_DUMP, 1, 0) + body, (0, 0))
            try:
                messages = [body for kind, body in _messages(link) if kind == answer]
            except OSError as trouble:
                if family == socket.AF_INET6 and trouble.errno in _NO_IPV6:
                    continue
                raise
            # A kernel without IPv6 may reply with all families that it has.
            yield from (message for message in messages if message[0] in (socket.AF_INET, socket.AF_INET6))


def _messages(link: socket.socket) -> Iterator[tuple[int, bytes]]:
    while True:
        data = link.recv(_RECEIVE_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            body = data[at + _HEADER.size : at + length]
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = struct.unpack_from("=i", body)[0]
                raise OSError(-number, "netlink refused the question")
            if length < _HEADER.size:
                raise OSError("netlink answered nonsense")
            yield kind, body
            at += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
