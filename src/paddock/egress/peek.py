"""Reads a client's intended host from its first bytes: the server name of a TLS ClientHello, or an HTTP Host header.

The bytes are not consumed. The name is not trusted: the connection goes to the addresses to which it really resolves.
"""

from __future__ import annotations

import asyncio
import re
import struct
from dataclasses import dataclass

from paddock import errors
from paddock.http1.head import parse_request
from paddock.http1.hosts import Host, parse_authority, parse_host
from paddock.http1.stream_socket import StreamSocket

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_METHOD = re.compile(rb"[A-Z]{3,16} ")
_METHOD_SO_FAR = re.compile(rb"[A-Z]{0,16}")


class Incomplete(Exception):
    """More bytes are needed. Internal to this module."""


@dataclass(frozen=True, slots=True)
class Peeked:
    name: Host | None = None
    http: bool = False
    """Whether the client would understand an HTTP response."""


async def peek(client: StreamSocket, seconds: float, most: int) -> Peeked:
    """Wait for the bytes needed; gives up on a client that waits for the server to send first."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return read_name(bytes(client.ahead))
                except Incomplete:
                    if len(client.ahead) >= most or not await client.fill():
                        return Peeked()
    except TimeoutError:
        return Peeked()


def read_name(data: bytes) -> Peeked:
    """Raises Incomplete if more bytes are needed, MalformedRequest for an invalid name."""
    if not data:
        raise Incomplete
    if data[0] == _HANDSHAKE:
        name = _server_name(_hello(data))
        return Peeked(parse_host(name) if name else None)
    if _METHOD.match(data):
        head, end, _ = data.partition(b"\r\n\r\n")
        if not end:
            raise Incomplete
        return Peeked(_http_host(head + end), http=True)
    if len(data) <= 16 and _METHOD_SO_FAR.fullmatch(data):
        raise Incomplete
    return Peeked()


def _http_host(head: bytes) -> Host | None:
    request = parse_request(head)
    hosts = [value for name, value in request.headers if name.lower() == b"host"]
    if len(hosts) > 1:
        raise errors.MalformedRequest("There is more than one Host header.")
    if not hosts or not hosts[0]:
        return None
    try:
        return parse_authority(hosts[0].decode(), 80)[0]
    except UnicodeDecodeError as trouble:
        raise errors.MalformedRequest("The Host header is not UTF-8.") from trouble


def _hello(data: bytes) -> bytes:
    """The body of the ClientHello, which may span several records."""
    handshake = bytearray()
    at = 0
    while True:
        if len(handshake) >= 4:
            if handshake[0] != _CLIENT_HELLO:
                return b""
            length = int.from_bytes(handshake[1:4], "big")
            if len(handshake) >= 4 + length:
                return bytes(handshake[4 : 4 + length])
        if len(data) < at + 5:
            raise Incomplete
        kind, major, size = struct.unpack_from("!BBxH", data, at)
        if kind != _HANDSHAKE or major != 3 or size == 0:
            return b""
        if len(data) < at + 5 + size:
            raise Incomplete
        handshake += data[at + 5 : at + 5 + size]
        at += 5 + size


def _server_name(hello: bytes) -> str | None:
    """RFC 8446, 4.1.2 and RFC 6066, 3. A ClientHello that is truncated or has invalid lengths has no name."""
    try:
        at = 2 + 32
        at += 1 + hello[at]
        at += 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 1 + hello[at]
        end = at + 2 + int.from_bytes(hello[at : at + 2], "big")
        at += 2
        while at + 4 <= min(end, len(hello)):
            kind, size = struct.unpack_from("!HH", hello, at)
            if kind == _SERVER_NAME:
                return _first_name(hello[at + 4 : at + 4 + size])
            at += 4 + size
    except (IndexError, UnicodeDecodeError):
        return None
    return None


def _first_name(extension: bytes) -> str | None:
    if len(extension) < 5 or extension[2] != 0:
        return None
    size = int.from_bytes(extension[3:5], "big")
    name = extension[5 : 5 + size]
    return name.decode("ascii") if len(name) == size else None
