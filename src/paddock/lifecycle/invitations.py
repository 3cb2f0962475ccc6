"""Links and tickets: how whoever may see a sandbox lets a browser, or somebody else, to one of its ports."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.clock import Clock
from paddock.lifecycle.accounts import Principal
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.tokens import Tokens
from paddock.settings import Settings
from paddock.store.records import Sandbox

LINK_PARAMETER = "paddock_link"
TICKET_PARAMETER = "paddock_ticket"
EXPOSED_SECONDS = 86_400
"""How long the URL of an exposed port is good."""


@dataclass(frozen=True, slots=True)
class Invitation:
    token: str
    url: str
    path: str
    """On the server's own host."""
    expires_at: float


class Invitations:
    def __init__(self, settings: Settings, clock: Clock, controller: Controller, tokens: Tokens) -> None:
        self._settings = settings
        self._clock = clock
        self._controller = controller
        self._tokens = tokens

    async def link(self, who: Principal, sandbox_id: str, port: int, seconds: int) -> Invitation:
        """Does not wake the sandbox; coming by it does."""
        seen = await self._controller.get(who, sandbox_id)
        return self.link_to(seen.sandbox, port, seconds)

    def link_to(self, sandbox: Sandbox, port: int, seconds: int = EXPOSED_SECONDS) -> Invitation:
        expires_at = self._clock.now() + seconds
        token = self._tokens.sign_link(sandbox.key, port, expires_at)
        return self._invitation(sandbox, port, f"{LINK_PARAMETER}={token}", token, expires_at)

    def exposed_url(self, sandbox: Sandbox, port: int) -> str:
        """What a browser can open at the first click."""
        if sandbox.public_ports:
            return self._settings.port_url(sandbox.key, port)
        return self.link_to(sandbox, port).url

    async def ticket(self, who: Principal, sandbox_id: str, port: int | None) -> Invitation:
        seen = await self._controller.get(who, sandbox_id)
        ticket, expires_at = await self._tokens.ticket(sandbox_id, who.user_id, port)
        return self._invitation(seen.sandbox, port or 0, f"{TICKET_PARAMETER}={ticket}", ticket, expires_at)

    def _invitation(self, sandbox: Sandbox, port: int, query: str, token: str, expires_at: float) -> Invitation:
        return Invitation(
            token=token,
            url=self._settings.port_url(sandbox.key, port, f"/?{query}"),
            path=f"/p/{sandbox.key}/{port}/?{query}",
            expires_at=expires_at,
        )
