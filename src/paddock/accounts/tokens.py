"""Tokens that are computed, not stored: each is a MAC under the installation's secret, for one sandbox and one use.

A token made for one purpose, sandbox or port is worth nothing for another. The secret is made once, by whichever server
comes first, and is the same for every replica; so are the tokens, for the whole life of a sandbox. Tickets alone are
rows, because they are good for one use: whoever deletes the row has used it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from paddock.clock import Clock
from paddock.errors import Unauthorized, Unavailable
from paddock.store import installation, tickets
from paddock.store.database import Store

TICKET_SECONDS = 60.0
_FORWARD_S = 60.0
_SECRET_BYTES = 32
_TICKET_PREFIX = "t_"
_LINK_BY_HOST, _LINK_BY_PATH = "link", "link by path"


@dataclass(frozen=True, slots=True)
class RedeemedTicket:
    """What a ticket was good for. Without a port: the API itself, about this sandbox, in the name of this user."""

    sandbox_id: str
    user_id: str
    port: int | None


class Tokens:
    def __init__(self, clock: Clock, store: Store) -> None:
        self._clock = clock
        self._store = store
        self._secret = b""

    async def open(self) -> None:
        async with self._store.write() as connection:
            secret = await installation.once(connection, "secret", secrets.token_hex(_SECRET_BYTES))
        self._secret = bytes.fromhex(secret)

    # For as long as the sandbox lives

    def access(self, key: str) -> str:
        """Opens the sandbox's envd (``X-Access-Token``)."""
        return self._mac("access", key)

    def check_access(self, key: str, token: str) -> bool:
        return _same(self.access(key), token)

    def traffic(self, key: str) -> str:
        """Opens every port of the sandbox (``e2b-traffic-access-token``)."""
        return self._mac("traffic", key)

    def check_traffic(self, key: str, token: str) -> bool:
        return _same(self.traffic(key), token)

    def file_key(self, key: str, rotated: int) -> str:
        """What Daytona's clients sign URLs of the sandbox's files with, until it is rotated."""
        return self._mac("files", key, rotated)

    def mcp(self, key: str) -> str:
        """Opens the sandbox's tools over MCP, from outside."""
        return self._mac("mcp", key)

    def check_mcp(self, key: str, token: str) -> bool:
        return _same(self.mcp(key), token)

    def mcp_inside(self, key: str) -> str:
        """Opens the same from inside the sandbox, on its own loopback, and nothing from outside."""
        return self._mac("mcp inside", key)

    def check_mcp_inside(self, key: str, token: str) -> bool:
        return _same(self.mcp_inside(key), token)

    # For one port, until a time

    def sign_link(self, key: str, port: int, expires_at: float, *, by_path: bool = False) -> str:
        """For a URL that somebody is given: by the port's own host, or ``by_path`` on the server's."""
        return self._until(_LINK_BY_PATH if by_path else _LINK_BY_HOST, key, port, int(expires_at))

    def check_link(self, key: str, port: int, link: str, *, by_path: bool = False) -> float | None:
        """When it expires; None where it is not, or no longer, good for this form of this port."""
        return self._check_until(_LINK_BY_PATH if by_path else _LINK_BY_HOST, key, port, link)

    def cookie(self, key: str, port: int, expires_at: float) -> str:
        """For a browser that has shown a link or a ticket once."""
        return self._until("cookie", key, port, int(expires_at))

    def check_cookie(self, key: str, port: int, cookie: str) -> bool:
        return self._check_until("cookie", key, port, cookie) is not None

    # Between the servers of an installation

    def sign_forward(self) -> str:
        """Shows that a request was passed on by a server, now."""
        return self._until("forward", "", 0, int(self._clock.now() + _FORWARD_S))

    def check_forward(self, proof: str) -> bool:
        return self._check_until("forward", "", 0, proof) is not None

    # Once

    async def ticket(self, sandbox_id: str, user_id: str, port: int | None = None) -> tuple[str, float]:
        """A ticket and when it expires. Of the ticket only the digest is kept."""
        ticket, now = _TICKET_PREFIX + secrets.token_urlsafe(24), self._clock.now()
        async with self._store.write() as connection:
            await tickets.forget(connection, now)
            await tickets.add(
                connection,
                digest=_digest(ticket),
                sandbox_id=sandbox_id,
                user_id=user_id,
                port=port,
                expires_at=now + TICKET_SECONDS,
            )
        return ticket, now + TICKET_SECONDS

    async def redeem(self, ticket: str) -> RedeemedTicket:
        """What it is good for; from now on it is good for nothing. However many ask at once, one gets it."""
        if not ticket.startswith(_TICKET_PREFIX) or len(ticket) > 100:
            raise Unauthorized("This is not a ticket.")
        async with self._store.write() as connection:
            found = await tickets.take(connection, _digest(ticket))
        if found is None or found["expires_at"] <= self._clock.now():
            raise Unauthorized("This ticket was used already, or is older than a minute. Ask for a new one.")
        return RedeemedTicket(found["sandbox_id"], found["user_id"], found["port"])

    # Inside

    def _mac(self, purpose: str, *parts: str | int) -> str:
        if not self._secret:
            raise Unavailable("The server has not read its secret yet.")
        message = "\0".join((purpose, *map(str, parts)))
        return hmac.new(self._secret, message.encode(), hashlib.sha256).hexdigest()

    def _until(self, purpose: str, key: str, port: int, expires_at: int) -> str:
        return f"{expires_at}.{self._mac(purpose, key, port, expires_at)}"

    def _check_until(self, purpose: str, key: str, port: int, token: str) -> float | None:
        written, _, _ = token.partition(".")
        if not (written.isascii() and written.isdecimal() and len(written) <= 12):
            return None
        expires_at = int(written)
        if not _same(self._until(purpose, key, port, expires_at), token) or expires_at <= self._clock.now():
            return None
        return float(expires_at)


def _same(expected: str, given: str) -> bool:
    """In a time that says nothing about where they differ."""
    return hmac.compare_digest(expected.encode(), given.encode(errors="surrogateescape"))


def link_digest(link: str) -> str:
    """By which a link is known that was called back before its time."""
    return _digest(link)[:32]


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode(errors="replace")).hexdigest()
