"""The gateway's own responses: JSON for programs, in the exact words that E2B's SDKs look for; a page for people."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from paddock import errors
from paddock.gateway.access import AccessDenied, AccessReason
from paddock.gateway.address import AddressForm
from paddock.gateway.origin import FORGET_COOKIES, FORGET_WORKERS, answer_headers
from paddock.gateway.request import TRAFFIC_HEADER

_JSON = "application/json; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_REASONS = {
    302: "Found",
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    409: "Conflict",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
_SOON, _LATER = 2, 10
_COOKIES = re.compile(rb"\r\ncookie[ \t]*:[^\r\n]*", re.IGNORECASE)
_HOST_FORM = re.compile(rb"\r\nhost[ \t]*:[ \t]*[0-9]+-", re.IGNORECASE)
_PORT_CLOSED = "The sandbox is running but port is not open"


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    form: AddressForm = AddressForm.PATH
    """How the request named the port. Where that is not known, the answer is fit for the API's origin."""

    def encode(self, *, head_only: bool = False, close: bool = False) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            *(f"{name}: {value}" for name, value in self._all_headers()),
            *(["Connection: close"] if close else []),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if head_only else self.body)

    def _all_headers(self) -> list[tuple[str, str]]:
        if self.status == 302:  # no document
            return list(self.headers)
        return [*self.headers, *answer_headers(self.form, page=self.content_type == _HTML)]


@dataclass(eq=False)  # not frozen: its traceback is set when it is raised
class GatewayRefusal(Exception):
    """An answer that the gateway gives instead of the sandbox. ``title`` and ``advice`` are for people."""

    status: int
    message: str
    title: str
    advice: str
    fields: dict[str, Any] = field(default_factory=dict)
    reload: int | None = None
    """After how many seconds a page should look again by itself, where it may be better then."""
    headers: tuple[tuple[str, str], ...] = ()

    def answer(self, sandbox: str, form: AddressForm, *, as_html: bool) -> GatewayResponse:
        if as_html:
            return GatewayResponse(self.status, _HTML, self._page(sandbox), self.headers, form)
        document = {"sandboxId": sandbox, "message": self.message, **self.fields, "code": self.status}
        return GatewayResponse(self.status, _JSON, json.dumps(document).encode(), self.headers, form)

    def _page(self, sandbox: str) -> bytes:
        values = {
            "title": self.title,
            "status": str(self.status),
            "advice": self.advice,
            "sandbox": sandbox,
            "port": str(self.fields.get("port", "")),
        }
        safe = {name: html.escape(value) for name, value in values.items()}
        refresh = f'<meta http-equiv="refresh" content="{self.reload}">' if self.reload else ""
        return _page().substitute(safe, refresh=refresh).encode()


def malformed(message: str, status: int = 400) -> GatewayResponse:
    return GatewayResponse(status, _TEXT, f"{message}\n".encode())


def head_too_long(head: bytes, limit: int) -> GatewayResponse:
    """Cookies that a sandbox's page set for the whole domain can make the head too long. The API's own host has them
    cleared; a page cannot bring that about with cookies of its own host."""
    text = f"The head of the request is over {limit} bytes."
    if sum(map(len, _COOKIES.findall(head))) < limit // 2:
        return GatewayResponse(431, _TEXT, f"{text}\n".encode())
    if _HOST_FORM.search(head):
        text += " Most of it are cookies: clear them, or open the address of the server itself once, which does."
        return GatewayResponse(431, _TEXT, f"{text}\n".encode(), form=AddressForm.HOST)
    text += " Most of it were cookies, which your browser has been told to clear. Load the page again."
    return GatewayResponse(431, _TEXT, f"{text}\n".encode(), (FORGET_COOKIES,))


def tls_in_front() -> GatewayResponse:
    """Paddock's own server has no TLS; what is written beside a transport of TLS would not be encrypted."""
    return malformed("Ports of sandboxes are served where TLS ends in a proxy before Paddock.", 503)


def redirect(location: str, cookie: str) -> GatewayResponse:
    """To the same page without its ticket, which then is neither in the history nor in a Referer."""
    headers = (("Location", location), ("Set-Cookie", cookie), ("Referrer-Policy", "no-referrer"))
    return GatewayResponse(302, _TEXT, b"", headers)


def not_for_pages(url: str | None, *, worker: bool) -> GatewayRefusal:
    """Instead of what a browser would show or run on the API's own origin. ``url``: the same on the port's own host."""
    where = f"its own address, {url}" if url else "its own address, which `paddock url SANDBOX PORT` prints"
    return GatewayRefusal(
        403,
        "This address is for programs. A browser opens the port by its host, <port>-<key>.<domain>",
        "This address is for programs",
        f"A page would run here with the rights of Paddock's own pages. Open the port by {where}.",
        headers=(FORGET_WORKERS,) if worker else (),
    )


def not_found() -> GatewayRefusal:
    return GatewayRefusal(
        502,
        "The sandbox was not found",
        "There is no such sandbox",
        "It was deleted, or is paused and does not wake by itself, or the address is not quite right. "
        "Ask whoever gave you the address for a new one.",
    )


def port_closed(port: int) -> GatewayRefusal:
    return GatewayRefusal(
        502,
        _PORT_CLOSED,
        f"Nothing listens on port {port} yet",
        f"The sandbox runs, but no program in it has opened port {port}. Start the server, on 127.0.0.1 or 0.0.0.0; "
        "this page looks again every two seconds.",
        {"port": port},
        reload=_SOON,
    )


def broken(port: int, what: str) -> GatewayRefusal:
    """The port is open, and what answers there is not a web server, or died."""
    return GatewayRefusal(
        502,
        f"The server on this port {what}",
        "The server in the sandbox gave no proper answer",
        f"A program listens on port {port}, but it {what}. Its own output says more.",
        {"port": port},
    )


def starting(port: int, title: str) -> GatewayRefusal:
    """For people only: programs wait until it listens."""
    return GatewayRefusal(
        503,
        f"{title} is starting. Try again in a moment.",
        f"{title} is starting",
        "It starts when it is first asked for, and is here in a few seconds; this page opens it by itself.",
        {"port": port},
        reload=_SOON,
    )


def not_started(port: int, title: str, error: errors.PaddockError) -> GatewayRefusal:
    """There is a service for the port, and it could not be brought to listen."""
    missing = isinstance(error, errors.AddonMissing)
    what = f"{title} is not installed" if missing else f"{title} did not start"
    return GatewayRefusal(502, error.message, what, error.message, {"port": port}, reload=_LATER)


def transitioning() -> GatewayRefusal:
    return GatewayRefusal(
        409,
        "The sandbox is still transitioning. Try again in a moment.",
        "The sandbox is just changing its state",
        "It is being paused or woken; this page looks again every two seconds.",
        reload=_SOON,
    )


def too_many(message: str) -> GatewayRefusal:
    return GatewayRefusal(429, message, "Too many at once", f"{message} Close some, and try again.")


def unavailable(error: errors.PaddockError) -> GatewayRefusal:
    return GatewayRefusal(503, error.message, "The sandbox cannot be reached now", error.message, reload=_SOON)


def refused(error: AccessDenied) -> GatewayRefusal:
    messages = {
        AccessReason.MISSING: "Sandbox is secured with traffic access token. "
        f"Token header '{TRAFFIC_HEADER}' is missing",
        AccessReason.BAD_TOKEN: "Sandbox is secured with traffic access token. "
        f"Provided token in header '{TRAFFIC_HEADER}' is invalid",
        AccessReason.BAD_KEY: "The API key is not known here, or its user may not open the ports of this sandbox",
        AccessReason.BAD_LINK: "The link or ticket is not valid for this port, was used already or has expired",
        AccessReason.FOREIGN_PAGE: "Another site's page may not use this port in the name of its visitor",
        AccessReason.LOCKED_OUT: "The user whose sandbox it is may not use Paddock any more",
    }
    return GatewayRefusal(
        403,
        messages[error.why],
        "This port is private",
        "Open it with a link: `paddock url SANDBOX PORT` prints one, and POST /sandboxes/expose-port answers with one. "
        "Programs send the header X-API-Key.",
        {"header": TRAFFIC_HEADER} if error.why in (AccessReason.MISSING, AccessReason.BAD_TOKEN) else {},
    )


@cache
def _page() -> Template:
    return Template(files("paddock.gateway").joinpath("page.html").read_text())
