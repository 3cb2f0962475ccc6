"""Signed file URLs: finds the sandbox of a signature, because the URL does not contain its id.

A signature is a digest of path, operation, user and the sandbox's token. So the tokens of all sandboxes are tried one
after the other, a few microseconds each, and the result is cached. New sandboxes are looked up only if no known one
matches, by one query for all concurrent requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from paddock.server.context import ServerContext

READ, WRITE = "read", "write"
_VERSION = "v1_"
_SIGNATURE_LENGTH = len(_VERSION) + 43
_MAX_DIGITS = 20
_FOUND = 4096
_MAX_CACHED_PATH = 1024
"""Maximum characters of a path whose signature is cached."""
_TRIES_PER_TURN = 512
"""Number of sandboxes tried before other tasks get a turn on the event loop."""


@dataclass(frozen=True, slots=True)
class Signed:
    """The signed parameters of a URL."""

    path: str
    operation: str
    user: str
    signature: str
    expiration: str | None

    @property
    def is_plausible(self) -> bool:
        """Whether any token could have signed this; otherwise no token is tried."""
        return len(self.signature) == _SIGNATURE_LENGTH and len(self.expiration or "") <= _MAX_DIGITS

    def fits(self, token: str) -> bool:
        return self.matcher()(token)

    def matcher(self) -> Callable[[str], bool]:
        """A function that checks a token. The part common to all tokens, which may be long, is hashed once."""
        begun = hashlib.sha256(":".join((self.path, self.operation, self.user, "")).encode(errors="surrogatepass"))
        given = self.signature.encode(errors="replace")
        end = "" if self.expiration is None else f":{self.expiration}"

        def fits(token: str) -> bool:
            digest = begun.copy()
            digest.update((token + end).encode(errors="surrogatepass"))
            return hmac.compare_digest(_VERSION.encode() + b64encode(digest.digest()).rstrip(b"="), given)

        return fits

    def expired(self, now: float) -> bool:
        """Without an expiry it is always valid; with an invalid one never."""
        if self.expiration is None:
            return False
        return not self._is_moment(self.expiration) or int(self.expiration) < now

    @staticmethod
    def _is_moment(text: str) -> bool:
        return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


class Signers:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._tokens: dict[str, str] = {}
        self._found: OrderedDict[Signed, str] = OrderedDict()
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def find(self, signed: Signed) -> str | None:
        """The key of the sandbox whose token signed this; None if there is none among the live ones."""
        if not signed.is_plausible:
            return None
        if (known := self._found.get(signed)) is not None:
            return known
        key = await self._try(signed, self._tokens)
        if key is None:
            before = self._tokens
            await self._refresh()
            fresh = {key: token for key, token in self._tokens.items() if key not in before}
            key = await self._try(signed, fresh)
        if key is not None and len(signed.path) + len(signed.user) <= _MAX_CACHED_PATH:
            self._found[signed] = key
            if len(self._found) > _FOUND:
                self._found.popitem(last=False)
        return key

    async def _try(self, signed: Signed, tokens: dict[str, str]) -> str | None:
        fits = signed.matcher()
        for tried, (key, token) in enumerate(tokens.items(), 1):
            if fits(token):
                return key
            if tried % _TRIES_PER_TURN == 0:
                await asyncio.sleep(0)
        return None

    async def _refresh(self) -> None:
        """With a query that starts after this call: a running one may have missed the newest sandbox."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._current))
        await asyncio.shield(self._next)

    async def _read_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        self._current, self._next = self._next, None
        keys = await self._context.controller.keys()
        # A new table each time, because other tasks may be iterating over the old one.
        tokens = self._context.tokens
        self._tokens = {key: self._tokens.get(key) or tokens.access(key) for key in keys}
