"""Signed file URLs: whose signature it is, where the URL itself does not say which sandbox is meant.

A signature is a digest over the path, what is to be done, the user and the sandbox's token. So it names its sandbox to
whoever has all tokens: they are tried one after the other, a few microseconds each, and what was found is remembered.
New sandboxes are asked for only when no known one fits, by one query however many ask at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode
from collections import OrderedDict
from dataclasses import dataclass

from paddock.lifecycle.house import House
from paddock.store import sandboxes

READ, WRITE = "read", "write"
_VERSION = "v1_"
_FOUND = 4096
_BREATH = 512
"""Sandboxes tried before others get their turn on the event loop."""


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signed URL says of itself."""

    path: str
    operation: str
    user: str
    signature: str
    expiration: str | None

    def fits(self, token: str) -> bool:
        return hmac.compare_digest(self._expected(token), self.signature.encode(errors="replace"))

    def expired(self, now: float) -> bool:
        """One that has no time is good for ever; one whose time is no number never was."""
        if self.expiration is None:
            return False
        return not self.expiration.isascii() or not self.expiration.isdecimal() or int(self.expiration) < now

    def _expected(self, token: str) -> bytes:
        parts = [self.path, self.operation, self.user, token]
        raw = ":".join(parts if self.expiration is None else [*parts, self.expiration])
        digest = hashlib.sha256(raw.encode(errors="surrogatepass")).digest()
        return _VERSION.encode() + b64encode(digest).rstrip(b"=")


class Signers:
    def __init__(self, house: House) -> None:
        self._house = house
        self._tokens: dict[str, str] = {}
        self._found: OrderedDict[Signed, str] = OrderedDict()
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def find(self, signed: Signed) -> str | None:
        """The key of the sandbox that this is signed for. None: of none that lives."""
        if (known := self._found.get(signed)) is not None:
            return known
        key = await self._try(signed, self._tokens)
        if key is None:
            before = self._tokens
            await self._refresh()
            fresh = {key: token for key, token in self._tokens.items() if key not in before}
            key = await self._try(signed, fresh)
        if key is not None:
            self._found[signed] = key
            if len(self._found) > _FOUND:
                self._found.popitem(last=False)
        return key

    async def _try(self, signed: Signed, tokens: dict[str, str]) -> str | None:
        for tried, (key, token) in enumerate(tokens.items(), 1):
            if signed.fits(token):
                return key
            if tried % _BREATH == 0:
                await asyncio.sleep(0)
        return None

    async def _refresh(self) -> None:
        """By a query that begins after this was asked: one under way may have missed the newest."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._current))
        await asyncio.shield(self._next)

    async def _read_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        self._current, self._next = self._next, None
        async with self._house.store.read() as connection:
            keys = await sandboxes.keys(connection)
        # A new table each time: whoever is looking through the old one is not disturbed.
        tokens = self._house.tokens
        self._tokens = {key: self._tokens.get(key) or tokens.access(key) for key in keys}
