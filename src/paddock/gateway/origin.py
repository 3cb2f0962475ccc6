"""What keeps sandboxes' pages off the origin of the API, and limits what they may do to the domain they share.

Two origins matter. The host form (``<port>-<key>.<domain>``) is the sandbox's own: pages run there, and only what
reaches beyond that origin is taken out of their answers. Everything else (the path form, the header form, files, this
server's own answers) has the origin of the API, of ``/docs`` and of a dashboard: there a browser may fetch what an
application answers, and never show or run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paddock.gateway.address import AddressForm, Destination
from paddock.gateway.request import COOKIES, PortRequest
from paddock.http1.head import HeaderList

_NO_DOCUMENT = "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'; sandbox"
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a file of a sandbox that is shown as it is: an image or a text can be read, a page runs nothing and has no
origin. (Browsers show images and videos with a style of their own.)"""
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
"""For a page of the gateway's own, which has no script."""

API_HEADERS = {
    "Content-Security-Policy": _NO_DOCUMENT,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Origin-Agent-Cluster": "?1",
    "Referrer-Policy": "no-referrer",
}
"""On every answer that has the API's origin, unless a route of ours says otherwise: no document, in no frame, with no
reference to it for the page that opened it. Fetching with CORS is not touched."""

FORGET_WORKERS = ("Clear-Site-Data", '"cache", "storage"')
"""For a request for a service worker's script on the API's origin, which has none. A browser asks by itself only for
one that it has from before such requests were refused; this ends that worker (and the caches that it filled)."""
FORGET_COOKIES = ("Clear-Site-Data", '"cookies"')
"""For a browser whose cookies alone are too long for a head: it could not come back before they are gone."""

# A page asks with fetch() or a WebSocket; whatever else a browser wants an address for, it shows or runs.
_FETCHES = frozenset({"empty", "websocket"})

# What reaches beyond the origin that it is sent from: the cookies of the whole domain, how the host is reached (which
# is for whoever runs the server to say), and a page's wish to be one origin with its neighbours.
_BEYOND_THE_ORIGIN = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"expect-ct",
        b"origin-agent-cluster",
        b"public-key-pins",
        b"public-key-pins-report-only",
        b"strict-transport-security",
    }
)
# What changes how a browser treats the whole origin, or does something besides answering.
_FOR_THE_ORIGIN = _BEYOND_THE_ORIGIN | {
    b"accept-ch",
    b"activate-storage-access",
    b"critical-ch",
    b"cross-origin-embedder-policy",
    b"cross-origin-opener-policy",
    b"cross-origin-resource-policy",
    b"nel",
    b"observe-browsing-topics",
    b"permissions-policy",
    b"refresh",
    b"report-to",
    b"reporting-endpoints",
    b"service-worker-allowed",
    b"service-worker-navigation-preload",
    b"set-login",
    b"speculation-rules",
    b"supports-loading-mode",
    b"use-as-dictionary",
    b"x-content-type-options",
}
_FOR_THE_ORIGIN_PREFIXES = (b"attribution-reporting-", b"sec-", b"secure-session-")
# A browser would keep cookies for the API's host, and ask for a password in its name.
_NOT_FOR_BROWSERS = frozenset({b"set-cookie", b"set-cookie2", b"www-authenticate"})


def shows_or_runs(request: PortRequest) -> bool:
    """Whether a browser would make a document, a frame, a script or a worker of the answer.

    Browsers say what they want it for over TLS and to localhost; elsewhere that they would rather have a page over TLS.
    """
    if request.header("service-worker") is not None or request.header("sec-fetch-mode") == "navigate":
        return True
    wanted_for = request.header("sec-fetch-dest")
    if wanted_for is None:
        return request.header("upgrade-insecure-requests") is not None
    return wanted_for not in _FETCHES


def confined_headers(headers: Iterable[tuple[bytes, bytes]], request: PortRequest) -> HeaderList:
    """The headers of an application's answer as they go to the client. What is added here, it cannot take away."""
    destination = request.destination
    if destination.form is AddressForm.HOST:
        kept = list(_own_origin(headers))
        if not any(name.lower() == b"cross-origin-opener-policy" for name, _ in kept):
            # A page elsewhere that opens a sandbox's page keeps no reference to it, unless that page allows it.
            kept.append((b"Cross-Origin-Opener-Policy", b"same-origin-allow-popups"))
        return kept
    return [*_apis_origin(headers, destination, browser=request.is_browser()), *_ADDED]


def answer_headers(form: AddressForm, *, page: bool) -> list[tuple[str, str]]:
    """For an answer of the gateway's own."""
    if form is not AddressForm.HOST:
        policy = f"{PAGE_POLICY}; frame-ancestors 'none'" if page else _NO_DOCUMENT
        return list((API_HEADERS | {"Content-Security-Policy": policy}).items())
    # Previews are shown in frames of other sites, and so is the page that says that one is starting.
    return [
        ("Content-Security-Policy", PAGE_POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Opener-Policy", "same-origin-allow-popups"),
        ("Referrer-Policy", "no-referrer"),
    ]


_ADDED: HeaderList = [(name.encode(), value.encode()) for name, value in API_HEADERS.items()]


def _own_origin(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name.lower() == b"set-cookie":
            if (cookie := _confined(value)) is not None:
                yield name, cookie
        elif name.lower() not in _BEYOND_THE_ORIGIN:
            yield name, value


def _apis_origin(
    headers: Iterable[tuple[bytes, bytes]], destination: Destination, *, browser: bool
) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        lower = name.lower()
        if lower in _FOR_THE_ORIGIN or _is_for_the_origin(lower):
            continue
        if browser and lower in _NOT_FOR_BROWSERS:
            continue
        if lower == b"set-cookie":
            if (cookie := _confined(value, destination.prefix)) is not None:
                yield name, cookie
        else:
            yield name, value


def _is_for_the_origin(name: bytes) -> bool:
    """``Sec-WebSocket-…`` concerns the handshake alone."""
    return name.startswith(_FOR_THE_ORIGIN_PREFIXES) and not name.startswith(b"sec-websocket-")


def _confined(cookie: bytes, prefix: str = "") -> bytes | None:
    """For this host alone, and in the path form for this port alone. None where it would take the gateway's place."""
    pair, *attributes = (part.strip(b" \t") for part in cookie.split(b";"))
    if pair.partition(b"=")[0].strip(b" \t").decode("latin-1") in COOKIES:
        return None
    dropped = (b"domain", b"path") if prefix else (b"domain",)
    kept = [part for part in attributes if part.partition(b"=")[0].strip(b" \t").lower() not in dropped]
    return b"; ".join([pair, *kept, *([f"Path={prefix}/".encode()] if prefix else [])])
