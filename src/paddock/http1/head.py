"""Parses the heads of HTTP/1 messages strictly: differences between parsers are what request smuggling exploits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from paddock import errors
from paddock.http1.hosts import Host, parse_authority
from paddock.http1.limits import MAX_HEADERS

Headers = Sequence[tuple[bytes, bytes]]
HeaderList = list[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_VERSION = re.compile(rb"HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_ABSOLUTE = re.compile(rb"(?i:http)://([^/?#]*)([^#]*)(#.*)?")

# RFC 9110, 7.6.1, and legacy names that clients still send to proxies.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
    )
)


class Framing(Enum):
    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_END = "until end"


@dataclass(frozen=True, slots=True)
class Body:
    framing: Framing
    length: int = 0

    def headers(self) -> Headers:
        if self.framing is Framing.LENGTH:
            return ((b"Content-Length", str(self.length).encode()),)
        return ((b"Transfer-Encoding", b"chunked"),) if self.framing is Framing.CHUNKED else ()


NO_BODY = Body(Framing.NONE)


@dataclass(frozen=True, slots=True)
class Head:
    minor: int
    headers: Headers

    def values(self, name: bytes) -> list[bytes]:
        """The elements of a list header, in lower case."""
        lines = (value for key, value in self.headers if key.lower() == name)
        return [part for line in lines for part in (piece.strip().lower() for piece in line.split(b",")) if part]

    def upgrade(self) -> bytes | None:
        """The protocol that is requested, or switched to."""
        if b"upgrade" not in self.values(b"connection"):
            return None
        return b", ".join(value for key, value in self.headers if key.lower() == b"upgrade") or None

    def header(self, name: str) -> str | None:
        """The first of this name, which is in lower case."""
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)

    def single(self, name: str) -> str | None:
        """A header that may be given once only: of two, one reader would take the first and another the last."""
        found = [value for key, value in self.headers if key.lower() == name.encode()]
        if len(found) > 1:
            raise errors.MalformedRequest(f"The header {name} is given more than once.")
        return found[0].decode("latin-1") if found else None

    def end_to_end(self) -> HeaderList:
        """The headers without those that concern only this connection."""
        named = set(self.values(b"connection"))
        return [(key, value) for key, value in self.headers if key.lower() not in _HOP_BY_HOP | named]

    def length(self) -> int | None:
        values = set(self.values(b"content-length"))
        if not values:
            return None
        value = values.pop()
        if values or not value.isdigit() or len(value) > 18:
            raise errors.MalformedRequest("The Content-Length is not one number.")
        return int(value)


@dataclass(frozen=True, slots=True)
class RequestHead(Head):
    method: bytes
    target: bytes

    def body(self) -> Body:
        codings, length = self.values(b"transfer-encoding"), self.length()
        if codings:
            if codings != [b"chunked"] or length is not None or self.minor == 0:
                raise errors.MalformedRequest("The framing of the body is ambiguous: send a length or chunks.")
            return Body(Framing.CHUNKED)
        return Body(Framing.LENGTH, length) if length is not None else NO_BODY

    def keep_alive(self) -> bool:
        said = (*self.values(b"connection"), *self.values(b"proxy-connection"))
        return self.minor == 1 and b"close" not in said

    def destination(self) -> tuple[Host, int, bytes]:
        """Host, port, and the request target in origin form, for the server."""
        match = _ABSOLUTE.fullmatch(self.target)
        if match is None or match[3] is not None:
            raise errors.MalformedRequest(
                "This is a proxy: ask it for an absolute http:// address, or for a tunnel with CONNECT."
            )
        path = match[2]
        host, port = parse_authority(_text(match[1]), 80)
        if not path.startswith(b"/"):
            path = b"*" if self.method == b"OPTIONS" and not path else b"/" + path
        return host, port, path

    def tunnel(self) -> tuple[Host, int]:
        return parse_authority(_text(self.target))


@dataclass(frozen=True, slots=True)
class ResponseHead(Head):
    status: int
    reason: bytes

    def body(self, method: bytes) -> Body:
        if method == b"HEAD" or self.status < 200 or self.status in (204, 304):
            return NO_BODY
        codings = self.values(b"transfer-encoding")
        if codings:
            return Body(Framing.CHUNKED) if codings == [b"chunked"] else Body(Framing.UNTIL_END)
        length = self.length()
        return Body(Framing.UNTIL_END) if length is None else Body(Framing.LENGTH, length)

    def keep_alive(self) -> bool:
        return self.minor == 1 and b"close" not in self.values(b"connection")

    def encode(self, headers: Headers) -> bytes:
        """The head with these headers, as it goes to the client."""
        return write_head(b"HTTP/1.1 %d %b" % (self.status, self.reason), headers)


def parse_request(data: bytes) -> RequestHead:
    line, headers = _lines(data)
    parts = line.split(b" ")
    version = _VERSION.fullmatch(parts[-1])
    if len(parts) != 3 or version is None or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise errors.MalformedRequest("The request line is not HTTP/1.1.")
    return RequestHead(int(version[1]), headers, parts[0], parts[1])


def parse_response(data: bytes) -> ResponseHead:
    line, headers = _lines(data)
    match = _STATUS.fullmatch(line)
    if match is None:
        raise errors.MalformedRequest("The server's status line is not HTTP/1.1.")
    return ResponseHead(int(match[1]), headers, int(match[2]), match[3] or b"")


def write_head(line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return line + b"\r\n" + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n"


def _lines(data: bytes) -> tuple[bytes, Headers]:
    first, *rest = data.removesuffix(b"\r\n\r\n").lstrip(b"\r\n").split(b"\r\n")
    if len(rest) > MAX_HEADERS:
        raise errors.MalformedRequest(f"There are more than {MAX_HEADERS} headers.")
    headers = []
    for line in rest:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise errors.MalformedRequest(f"A header line is malformed: {line[:40]!r}.")
        headers.append((name, value))
    return first, headers


def _text(authority: bytes) -> str:
    try:
        return authority.decode()
    except UnicodeDecodeError as trouble:
        raise errors.MalformedRequest("The host name is not UTF-8.") from trouble
