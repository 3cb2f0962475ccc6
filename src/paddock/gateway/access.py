"""Who may open a port of a sandbox. Checked for every request: a proxy may carry many clients on one connection.

A link or a ticket opens it, an API key of the sandbox's owner or of an admin, its traffic token, a cookie; and where
the sandbox's ports are public, everybody may. A cookie is the only one of these that a browser sends by itself, so it
counts only for what the page itself asks for, or a person who follows a link to it: another site's page, or another
sandbox's, cannot use it. Cookies and tickets are for the host form, where browsers open ports; a link is for the form
that it was made for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol
from urllib.parse import urlsplit

from paddock import errors, ids
from paddock.accounts.accounts import Accounts, Principal
from paddock.accounts.tokens import Tokens, link_digest
from paddock.clock import Clock
from paddock.gateway.address import AddressForm
from paddock.gateway.request import (
    COOKIE,
    COOKIES,
    PREVIEW_HEADER,
    PREVIEW_PARAMETER,
    SECURE_COOKIE,
    TRAFFIC_HEADER,
    PortRequest,
)
from paddock.runtime.port_links import LINK_PARAMETER, TICKET_PARAMETER
from paddock.store.records import SandboxRow

TICKET_COOKIE_SECONDS = 12 * 3600.0
_SAFE = frozenset({"GET", "HEAD"})


class AccessReason(Enum):
    MISSING = "nothing was shown"
    BAD_TOKEN = "the traffic token is another sandbox's, or nobody's"  # noqa: S105 (a sentence)
    BAD_KEY = "the API key is not known, or its user may not"
    BAD_LINK = "the link or ticket is for another port, used, or too old"
    FOREIGN_PAGE = "the cookie was sent on behalf of another site's page"
    LOCKED_OUT = "the user whose sandbox it is may not use Paddock any more"


class AccessDenied(errors.Forbidden):
    def __init__(self, why: AccessReason) -> None:
        super().__init__(f"This port is private: {why.value}.")
        self.why = why


class Credentials(Protocol):
    def header(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AccessGranted:
    secret: frozenset[str] = field(default_factory=frozenset)
    """Headers that hold a key of this server, which the code in the sandbox must not see."""
    cookie: str | None = None
    """To be set, before the browser is sent to the same address without its link or ticket."""
    as_public: bool = False
    """Only because the sandbox's ports are public."""


class Access:
    def __init__(self, accounts: Accounts, tokens: Tokens, clock: Clock) -> None:
        self._accounts = accounts
        self._tokens = tokens
        self._clock = clock

    async def check(self, request: PortRequest, sandbox: SandboxRow, *, secure: bool) -> AccessGranted:
        """``secure``: whether the browser speaks TLS, with us or with a proxy in front of us. Raises AccessDenied."""
        who, secret = await self.principal(request)
        if who is None or not who.is_admin:
            await self._check_owner(sandbox)
        shown = bool(request.parameter(LINK_PARAMETER) or request.parameter(TICKET_PARAMETER))
        if shown and (expires_at := await self._expiry(request, sandbox)) is not None:
            # A browser that comes to a page this way gets a cookie, since it will ask for more than the page.
            new_cookie = request.destination.form is AddressForm.HOST and request.is_navigation()
            return AccessGranted(secret, self._new_cookie(request, sandbox, expires_at, secure) if new_cookie else None)
        owned = who is not None and (who.is_admin or who.user_id == sandbox.owner_id)
        if sandbox.public_ports or owned:
            return AccessGranted(secret, as_public=not owned)
        if (token := _traffic_token(request)) is not None:
            if not self._tokens.check_traffic(sandbox.key, token):
                raise AccessDenied(AccessReason.BAD_TOKEN)
            return AccessGranted(secret)
        if self._has_cookie(request, sandbox):
            if not _asked_by_the_page_itself(request):
                raise AccessDenied(AccessReason.FOREIGN_PAGE)
            return AccessGranted(secret)
        raise AccessDenied(
            AccessReason.BAD_LINK if shown else AccessReason.BAD_KEY if _keys(request) else AccessReason.MISSING
        )

    async def _check_owner(self, sandbox: SandboxRow) -> None:
        """Links, tokens, cookies and public ports of a disabled user are refused, too."""
        try:
            await self._accounts.stand_for(sandbox.owner_id)
        except errors.Unauthorized:
            raise AccessDenied(AccessReason.LOCKED_OUT) from None

    async def principal(self, request: Credentials) -> tuple[Principal | None, frozenset[str]]:
        """The user of the key that was sent, and the headers that hold our keys. Other keys are the application's."""
        found: dict[str, Principal] = {}
        for name, key in _keys(request):
            with suppress(errors.Unauthorized):
                found[name] = await self._accounts.authenticate(key)
        return next(iter(found.values()), None), frozenset(found)

    async def _expiry(self, request: PortRequest, sandbox: SandboxRow) -> float | None:
        """When the link or ticket expires; None where it is not valid."""
        port, form = request.destination.port, request.destination.form
        if link := request.parameter(LINK_PARAMETER):
            if link_digest(link) in sandbox.revoked_links:
                return None
            return self._tokens.check_link(sandbox.key, port, link, by_path=form is not AddressForm.HOST)
        if form is not AddressForm.HOST:
            return None
        try:
            ticket = await self._tokens.redeem(request.parameter(TICKET_PARAMETER) or "")
        except errors.Unauthorized:
            return None
        good = ticket.sandbox_id == sandbox.sandbox_id and ticket.port == port
        return self._clock.now() + TICKET_COOKIE_SECONDS if good else None

    def _has_cookie(self, request: PortRequest, sandbox: SandboxRow) -> bool:
        port = request.destination.port
        return request.destination.form is AddressForm.HOST and any(
            name in COOKIES and self._tokens.check_cookie(sandbox.key, port, value) for name, value in request.cookies()
        )

    def _new_cookie(self, request: PortRequest, sandbox: SandboxRow, expires_at: float, secure: bool) -> str:
        value = self._tokens.cookie(sandbox.key, request.destination.port, expires_at)
        name = SECURE_COOKIE if secure else COOKIE
        age = max(0, int(expires_at - self._clock.now()))
        parts = [f"{name}={value}", "Path=/", f"Max-Age={age}", "HttpOnly", "SameSite=Lax"]
        return "; ".join([*parts, "Secure"] if secure else parts)


def _traffic_token(request: PortRequest) -> str | None:
    """As E2B's clients send it, or as Daytona's do: by a header, or in the address."""
    shown = request.header(TRAFFIC_HEADER), request.header(PREVIEW_HEADER), request.parameter(PREVIEW_PARAMETER)
    return next((token for token in shown if token is not None), None)


def _keys(request: Credentials) -> list[tuple[str, str]]:
    """Headers that hold what looks like a key of ours; anything else is not worth a look into the database."""
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    given = {"authorization": token if scheme.lower() == "bearer" else "", "x-api-key": request.header("x-api-key")}
    return [(name, key.strip()) for name, key in given.items() if key and ids.is_api_key(key.strip())]


def _asked_by_the_page_itself(request: PortRequest) -> bool:
    """Or by a person: an address that was typed in, a bookmark, a link that was followed."""
    origin = request.header("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
        return False
    site = request.header("sec-fetch-site")
    if site in (None, "none", "same-origin"):
        # A browser too old to say where a request comes from still names the origin of an upgrade or a post.
        return origin is not None or site is not None or (request.method in _SAFE and request.upgrade is None)
    return request.header("sec-fetch-mode") == "navigate" and request.method in _SAFE
