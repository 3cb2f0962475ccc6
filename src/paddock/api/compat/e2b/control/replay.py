"""Idempotency keys as E2B means them: the same key and request get the same answer again, failures included.

A create that succeeded is found by its sandbox, from whose row the answer follows; it is claimed in the transaction
that writes the row, so no crash can come between. A failure is written down when it happened. What did not work for
want of something that may be there a moment later (a quota, a provider) is not kept: to try that again is what keys
are for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from paddock import errors
from paddock.api.auth import Authenticated
from paddock.api.compat.e2b.errors import E2BError, as_e2b
from paddock.models import State
from paddock.store.records import SandboxRow

_KEY = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)


def stored_key(key: str) -> str:
    """Prefixed, so that it never equals a key of the native API."""
    return f"e2b:{key}"


class Replay:
    def __init__(self) -> None:
        self._running: dict[tuple[str, str], str] = {}

    async def once(
        self, caller: Authenticated, key: str, fingerprint: str, make: Callable[[], Awaitable[SandboxRow]]
    ) -> SandboxRow:
        """The result of ``make``, or that of the first request with this key."""
        if not _KEY.fullmatch(key):
            raise E2BError(400, "Idempotency-Key must be 1 to 255 letters, digits, hyphens or underscores")
        place = (caller.who.user_id, key)
        if place in self._running:
            raise _in_progress() if self._running[place] == fingerprint else _mismatch()
        self._running[place] = fingerprint
        try:
            return await self._known(caller, key, fingerprint) or await self._make(caller, key, fingerprint, make)
        finally:
            del self._running[place]

    async def _known(self, caller: Authenticated, key: str, fingerprint: str) -> SandboxRow | None:
        found = await caller.context.idempotency.find(caller.who, stored_key(key))
        if found is None:
            return None
        claim, sandbox = found
        if claim.fingerprint != fingerprint:
            raise _mismatch()
        if claim.answer is not None:
            raise E2BError(claim.answer["status"], claim.answer["message"])
        if sandbox is not None and sandbox.state is State.CREATING:
            raise _in_progress()
        if sandbox is None or sandbox.started_at is None:
            reason = sandbox.reason if sandbox else None
            raise errors.ProviderRefused(reason or "The create that used this Idempotency-Key failed.")
        return sandbox

    async def _make(
        self, caller: Authenticated, key: str, fingerprint: str, make: Callable[[], Awaitable[SandboxRow]]
    ) -> SandboxRow:
        try:
            return await make()
        except (E2BError, errors.PaddockError) as problem:
            answer = as_e2b(problem)
            if 400 <= answer.status < 500 and answer.status != 429 and answer.error_code is None:
                kept = {"status": answer.status, "message": answer.message}
                await caller.context.idempotency.keep_answer(caller.who, stored_key(key), fingerprint, kept)
            raise


def _mismatch() -> E2BError:
    return E2BError(
        409,
        "This Idempotency-Key was used for a different request. Use a new key.",
        error_code="idempotency_request_mismatch",
    )


def _in_progress() -> E2BError:
    return E2BError(
        409, "The request that used this Idempotency-Key is still running.", error_code="idempotency_in_progress"
    )
