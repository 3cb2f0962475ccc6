"""Links and tickets: give a browser, or another person, access to one port of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.accounts.accounts import Principal
from paddock.accounts.tokens import Tokens
from paddock.clock import Clock
from paddock.lifecycle.controller import Controller
from paddock.settings import Settings
from paddock.store.records import SandboxRow

LINK_PARAMETER = "paddock_link"
TICKET_PARAMETER = "paddock_ticket"
EXPOSED_SECONDS = 86_400
"""Validity of an exposed port's URL."""


@dataclass(frozen=True, slots=True)
class PortLink:
    token: str
    """The token within ``url``."""
    url: str
    expires_at: float
    path: str = ""
    """Path on the server's own host, with a token valid only there: for programs. Empty for tickets."""


class PortLinks:
    def __init__(self, settings: Settings, clock: Clock, controller: Controller, tokens: Tokens) -> None:
        self._settings = settings
        self._clock = clock
        self._controller = controller
        self._tokens = tokens

    async def link(self, who: Principal, sandbox_id: str, port: int, seconds: int) -> PortLink:
        """Create a link. This does not resume the sandbox; a request to the link does."""
        seen = await self._controller.get(who, sandbox_id)
        return self.link_to(seen.sandbox, port, seconds)

    def link_to(self, sandbox: SandboxRow, port: int, seconds: int = EXPOSED_SECONDS) -> PortLink:
        expires_at = self._clock.now() + seconds
        by_host = self._tokens.sign_link(sandbox.key, port, expires_at)
        by_path = self._tokens.sign_link(sandbox.key, port, expires_at, by_path=True)
        return PortLink(
            token=by_host,
            url=self._settings.port_url(sandbox.key, port, f"/?{LINK_PARAMETER}={by_host}"),
            expires_at=expires_at,
            path=f"/p/{sandbox.key}/{port}/?{LINK_PARAMETER}={by_path}",
        )

    def exposed_url(self, sandbox: SandboxRow, port: int) -> str:
        """URL that a browser can open directly."""
        if sandbox.public_ports:
            return self._settings.port_url(sandbox.key, port)
        return self.link_to(sandbox, port).url

    def program_url(self, sandbox: SandboxRow, port: int) -> str:
        """The same for programs, many of which do not resolve names below ``localhost`` as browsers do."""
        if self._settings.resolves_below_domain:
            return self.exposed_url(sandbox, port)
        path = f"/p/{sandbox.key}/{port}/" if sandbox.public_ports else self.link_to(sandbox, port).path
        return self._settings.public_url(path)

    async def ticket(self, who: Principal, sandbox_id: str, port: int | None) -> PortLink:
        seen = await self._controller.get(who, sandbox_id)
        ticket, expires_at = await self._tokens.ticket(sandbox_id, who.user_id, port)
        url = self._settings.port_url(seen.sandbox.key, port or 0, f"/?{TICKET_PARAMETER}={ticket}")
        return PortLink(token=ticket, url=url, expires_at=expires_at)
