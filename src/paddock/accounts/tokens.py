"""Tokens that are computed, not stored: each is a MAC under the installation's secret, for one sandbox and one purpose.

A token made for one purpose, sandbox or port is not valid for another. The first server of an installation creates the
secret and all replicas share it, so tokens are the same everywhere and valid for the sandbox's whole life. Only tickets
are rows in the database, because they are single-use: the server that deletes the row has redeemed the ticket.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from paddock.clock import Clock
from paddock.errors import Unauthorized, Unavailable
from paddock.store import accounts
from paddock.store.database import Store

TICKET_SECONDS = 60.0
_FORWARD_S = 60.0
_SECRET_BYTES = 32
_TICKET_PREFIX = "t_"
_LINK_BY_HOST, _LINK_BY_PATH = "link", "link by path"


@dataclass(frozen=True, slots=True)
class RedeemedTicket:
    """What a ticket allows. Without a port: the API itself, for this sandbox, in the name of this user."""

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
            secret = await accounts.installation_value(connection, "secret", secrets.token_hex(_SECRET_BYTES))
        self._secret = bytes.fromhex(secret)

    # Valid for the sandbox's whole life

    def access(self, key: str) -> str:
        """Token for the sandbox's envd (``X-Access-Token``)."""
        return self._mac("access", key)

    def check_access(self, key: str, token: str) -> bool:
        return _same(self.access(key), token)

    def traffic(self, key: str) -> str:
        """Token for every port of the sandbox (``e2b-traffic-access-token``)."""
        return self._mac("traffic", key)

    def check_traffic(self, key: str, token: str) -> bool:
        return _same(self.traffic(key), token)

    def file_key(self, key: str, rotated: int) -> str:
        """Key that Daytona clients sign file URLs of the sandbox with. ``rotated`` counts its rotations."""
        return self._mac("files", key, rotated)

    def mcp(self, key: str) -> str:
        """Token for the sandbox's MCP endpoint, from outside."""
        return self._mac("mcp", key)

    def check_mcp(self, key: str, token: str) -> bool:
        return _same(self.mcp(key), token)

    def mcp_inside(self, key: str) -> str:
        """Token for the MCP endpoint from inside the sandbox, on its loopback interface; not valid from outside."""
        return self._mac("mcp inside", key)

    def check_mcp_inside(self, key: str, token: str) -> bool:
        return _same(self.mcp_inside(key), token)

    # Valid for one port, until an expiry time

    def sign_link(self, key: str, port: int, expires_at: float, *, by_path: bool = False) -> str:
        """Signature for a shared URL: on the port's own host name, or ``by_path`` on the server's."""
        return self._until(_LINK_BY_PATH if by_path else _LINK_BY_HOST, key, port, int(expires_at))

    def check_link(self, key: str, port: int, link: str, *, by_path: bool = False) -> float | None:
        """The link's expiry time; None if it is expired, or not valid for this port and form of URL."""
        return self._check_until(_LINK_BY_PATH if by_path else _LINK_BY_HOST, key, port, link)

    def cookie(self, key: str, port: int, expires_at: float) -> str:
        """Cookie for a browser that has presented a valid link or ticket."""
        return self._until("cookie", key, port, int(expires_at))

    def check_cookie(self, key: str, port: int, cookie: str) -> bool:
        return self._check_until("cookie", key, port, cookie) is not None

    # Between the servers of an installation

    def sign_forward(self) -> str:
        """Short-lived proof that a request was forwarded by a server of this installation."""
        return self._until("forward", "", 0, int(self._clock.now() + _FORWARD_S))

    def check_forward(self, proof: str) -> bool:
        return self._check_until("forward", "", 0, proof) is not None

    # Single-use tickets

    async def ticket(self, sandbox_id: str, user_id: str, port: int | None = None) -> tuple[str, float]:
        """Create a ticket; returns it with its expiry time. Only its digest is stored."""
        ticket, now = _TICKET_PREFIX + secrets.token_urlsafe(24), self._clock.now()
        async with self._store.write() as connection:
            await accounts.forget_tickets(connection, now)
            await accounts.add_ticket(
                connection,
                digest=_digest(ticket),
                sandbox_id=sandbox_id,
                user_id=user_id,
                port=port,
                expires_at=now + TICKET_SECONDS,
            )
        return ticket, now + TICKET_SECONDS

    async def redeem(self, ticket: str) -> RedeemedTicket:
        """Consume the ticket and return what it allows. Of several concurrent calls exactly one succeeds."""
        if not ticket.startswith(_TICKET_PREFIX) or len(ticket) > 100:
            raise Unauthorized("This is not a ticket.")
        async with self._store.write() as connection:
            found = await accounts.take_ticket(connection, _digest(ticket))
        if found is None or found["expires_at"] <= self._clock.now():
            raise Unauthorized("This ticket was used already, or is older than a minute. Ask for a new one.")
        return RedeemedTicket(found["sandbox_id"], found["user_id"], found["port"])

    # Internal

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
    """Compare in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode(errors="surrogateescape"))


def link_digest(link: str) -> str:
    """Identifies a revoked link without storing the link itself."""
    return _digest(link)[:32]


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode(errors="replace")).hexdigest()
