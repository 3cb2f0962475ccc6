"""A request for a port of a sandbox: its head read strictly, and written anew for the server in the sandbox.

What two readers could read differently is refused, because a request that one of them does not see is one that nobody
authorised. What the code in the sandbox must not see (keys, tokens, the gateway's own cookie) does not come through.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Set
from dataclasses import dataclass
from urllib.parse import unquote_plus

from paddock import errors
from paddock.gateway.address import ID_HEADER, PORT_HEADER, AddressForm, Destination, find_destination
from paddock.http1.head import Body, HeaderList, RequestHead, parse_request, write_head
from paddock.runtime.port_links import LINK_PARAMETER, TICKET_PARAMETER

TRAFFIC_HEADER = "e2b-traffic-access-token"
PREVIEW_HEADER = "x-daytona-preview-token"
PREVIEW_PARAMETER = "DAYTONA_SANDBOX_AUTH_KEY"
FORWARDED_HEADER = "x-paddock-forwarded"
"""On a request that another server passes on: it is answered where it arrives. Its value proves that a
server has sent it, so that what it says about the client is believed."""
COOKIE = "paddock_port"
SECURE_COOKIE = "__Host-paddock_port"
"""Browsers take a cookie of this name only over TLS, for one host, from that host itself (RFC 6265bis, 4.1.3)."""
COOKIES = frozenset({COOKIE, SECURE_COOKIE})

# Whatever might be for a port of a sandbox; everything else is for the API, whose own parser reads it.
_SIGNS = re.compile(
    rb"\A[\r\n]*[^\r\n ]+ (?:/p/|http)|\r\n(?:e2b-sandbox-|host[ \t]*:[ \t]*[0-9]+-)",
    re.IGNORECASE,
)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^#]*)")
_HOST = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SLASHES = re.compile(r"\A[/\\]+")
_NOT_FORWARDED = frozenset({ID_HEADER, PORT_HEADER, TRAFFIC_HEADER, PREVIEW_HEADER, FORWARDED_HEADER, "host"})
_ADDED = frozenset({"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix"})


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The other end of the connection, for the headers that tell the server in the sandbox about it."""

    address: str
    scheme: str
    proxy: bool = True
    """Whether it is a trusted proxy in front of the server, whose headers about the client are believed."""


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A request for a port of a sandbox."""

    head: RequestHead
    destination: Destination
    host: str
    """As the client named it."""
    target: bytes
    """Path and query, as the server in the sandbox shall see them but for the gateway's own parameters."""
    body: Body

    @property
    def method(self) -> str:
        return self.head.method.decode()

    @property
    def upgrade(self) -> bytes | None:
        return self.head.upgrade()

    def header(self, name: str) -> str | None:
        return self.head.header(name)

    def parameter(self, name: str) -> str | None:
        _, _, query = self.target.decode("latin-1").partition("?")
        for pair in query.split("&"):
            key, _, value = pair.partition("=")
            if key == name:
                return unquote_plus(value)
        return None

    def clean_target(self) -> bytes:
        """Without what the gateway's own parameters say; the others as they were written."""
        path, mark, query = self.target.partition(b"?")
        if not mark:
            return self.target
        own = (LINK_PARAMETER.encode(), TICKET_PARAMETER.encode(), PREVIEW_PARAMETER.encode())
        kept = [pair for pair in query.split(b"&") if pair.partition(b"=")[0] not in own]
        return path + b"?" + b"&".join(kept) if kept and kept != [b""] else path

    def clean_location(self) -> str:
        """Where to send a browser for it. Never to another host, which is what a path of two slashes would name."""
        return self.destination.prefix + _SLASHES.sub("/", self.clean_target().decode("latin-1"))

    def cookies(self) -> list[tuple[str, str]]:
        pairs = []
        for key, value in self.head.headers:
            if key.lower() == b"cookie":
                for piece in value.decode("latin-1").split(";"):
                    name, _, content = piece.strip().partition("=")
                    pairs.append((name, content))
        return pairs

    def wants_html(self) -> bool:
        """Whether a person looks at the answer: what asks for a document, or calls itself a browser."""
        if "text/html" in (self.header("accept") or ""):
            return True
        mode = self.header("sec-fetch-mode")
        return mode == "navigate" if mode else _BROWSER.search(self.header("user-agent") or "") is not None

    def is_browser(self) -> bool:
        """Whether it comes from a page in a browser, which adds what it keeps for the host by itself."""
        if self.header("sec-fetch-site") is not None or self.header("sec-fetch-mode") is not None:
            return True
        return _BROWSER.search(self.header("user-agent") or "") is not None

    def is_navigation(self) -> bool:
        """Whether a browser would show the answer in its window, and follow where it is sent."""
        mode = self.header("sec-fetch-mode")
        loads = mode == "navigate" if mode else "text/html" in (self.header("accept") or "")
        return loads and self.method in ("GET", "HEAD") and self.upgrade is None

    def forwarded(self, caller: ClientInfo, *, host_mask: str | None, secret: Collection[str]) -> bytes:
        """The head as it goes into the sandbox. ``secret``: headers that hold a key of ours."""
        headers = [(b"Host", self._host(host_mask))]
        # A browser's cookies of the API's host (such as a dashboard's session) are not for applications.
        foreign = {"cookie"} if self.destination.form is not AddressForm.HOST and self.is_browser() else frozenset()
        for key, value in self.head.end_to_end():
            name = key.lower().decode()
            if name in _NOT_FORWARDED or name in _ADDED or name in secret or name in foreign:
                continue
            kept = _without_our_cookie(value) if name == "cookie" else value
            if kept or not value:
                headers.append((key, kept))
        headers += self._forwarded_headers(caller)
        headers += self.body.headers()
        if self.upgrade is not None:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", self.upgrade)]
        return write_head(b"%b %b HTTP/1.1" % (self.head.method, self.clean_target()), headers)

    def scheme(self, caller: ClientInfo) -> str:
        """Which the client speaks, with us or with a proxy in front of us."""
        return (self.header("x-forwarded-proto") if caller.proxy else None) or caller.scheme

    def _host(self, mask: str | None) -> bytes:
        if mask is None:
            return self.host.encode()
        return mask.replace("${PORT}", str(self.destination.port)).encode()

    def _forwarded_headers(self, caller: ClientInfo) -> HeaderList:
        """What a trusted proxy in front of us has sent counts; from anybody else it is no more than a claim."""
        chain, host = (self.header(f"x-forwarded-{name}") if caller.proxy else None for name in ("for", "host"))
        values = {
            "X-Forwarded-For": ", ".join(filter(None, (chain, caller.address))),
            "X-Forwarded-Proto": self.scheme(caller),
            "X-Forwarded-Host": host or self.host,
            "X-Forwarded-Prefix": self.destination.prefix,
        }
        return [(name.encode(), value.encode("latin-1")) for name, value in values.items() if value]


_BROWSER = re.compile(r"Mozilla/|Opera/|Chrome/|Safari/|Firefox/|Edge?/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """A request's head as the gateway has read it, once."""

    data: bytes
    head: RequestHead
    path: str
    destination: Destination | None
    """The port of a sandbox that it is for; None where it is for the API."""
    port_request: PortRequest | None
    """None also for a port that the server answers itself."""


def read_request(data: bytes, served_ports: Set[int], *, always: bool = False) -> IncomingRequest | None:
    """``data`` is one whole head. ``served_ports``: those that the server answers itself, whatever listens in the
    sandbox. None where the request is for the API and need not be parsed, unless ``always``.

    Raises MalformedRequest for what cannot be, but only where it might be for a port of a sandbox: what is wrong with
    other requests is for the API to say.
    """
    signs = _SIGNS.search(data) is not None
    if not signs and not always:
        return None
    try:
        head = parse_request(data)
        host, target = named(head)
        path = target.partition(b"?")[0].decode("latin-1")
        destination = find_destination(host, head.single, path)
    except errors.MalformedRequest:
        if signs:
            raise
        return None
    port_request = None
    if destination is not None and destination.port not in served_ports:
        port_request = _port_request(head, destination, host, target)
    return IncomingRequest(data, head, path, destination, port_request)


def _port_request(head: RequestHead, destination: Destination, host: str, target: bytes) -> PortRequest:
    if head.method == b"CONNECT":
        raise errors.MalformedRequest("Ports of sandboxes are asked directly; this is no proxy for CONNECT.")
    target = target[len(destination.prefix) :]
    if not target.startswith(b"/") and target != b"*":
        target = b"/" + target
    return PortRequest(head, destination, host, target, head.body())


def named(head: RequestHead) -> tuple[str, bytes]:
    """The host and the target. A target in absolute form names the host itself, and must not name another one."""
    hosts = [value for key, value in head.headers if key.lower() == b"host"]
    if len(hosts) > 1 or (head.minor == 1 and not hosts):
        raise errors.MalformedRequest("A request names one Host.")
    host, target = hosts[0] if hosts else b"", head.target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        if hosts and host.lower() != absolute[1].lower():
            raise errors.MalformedRequest("The Host and the address of the request are not the same.")
        host, target = absolute[1], absolute[2]
        if not target.startswith(b"/"):
            target = b"/" + target
    if host and not _HOST.fullmatch(host):
        raise errors.MalformedRequest("The Host is not the name of one.")
    return host.decode(), target


def _without_our_cookie(header: bytes) -> bytes:
    pieces = (piece.strip() for piece in header.split(b";"))
    return b"; ".join(piece for piece in pieces if piece.partition(b"=")[0].decode("latin-1") not in COOKIES)
