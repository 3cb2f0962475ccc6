"""Idempotency keys as E2B means them: the same key and request get the same answer again, failures included.

A create that succeeded is found by its sandbox, from whose row the answer follows; it is claimed in the transaction
that writes the row, so no crash can come between. A failure is written down when it happened. What did not work for
want of something that may be there a moment later (a quota, a provider) is not kept: to try that again is what keys
are for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from paddock import errors
from paddock.api.auth import Authenticated
from paddock.api.compat.e2b.errors import E2BError, as_e2b
from paddock.lifecycle.idempotency import REMEMBERED_SECONDS
from paddock.models import State
from paddock.store import idempotency, sandboxes
from paddock.store.idempotency import KeyClaim
from paddock.store.records import SandboxRow

_KEY = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)


def stored_key(key: str) -> str:
    """Keys of the native API are another matter."""
    return f"e2b:{key}"


class Replay:
    def __init__(self) -> None:
        self._running: dict[tuple[str, str], str] = {}

    async def once(
        self, caller: Authenticated, key: str, fingerprint: str, make: Callable[[], Awaitable[SandboxRow]]
    ) -> SandboxRow:
        """What ``make`` makes, or made when this key was used before."""
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
        context = caller.context
        async with context.store.read() as connection:
            claim = await idempotency.find(connection, caller.who.user_id, stored_key(key))
            if claim is None or claim.created_at < context.clock.now() - REMEMBERED_SECONDS:
                return None
            if claim.fingerprint != fingerprint:
                raise _mismatch()
            if claim.answer is not None:
                raise E2BError(claim.answer["status"], claim.answer["message"])
            sandbox = await sandboxes.get(connection, claim.sandbox_id)
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
                await self._keep(caller, key, fingerprint, {"status": answer.status, "message": answer.message})
            raise

    async def _keep(self, caller: Authenticated, key: str, fingerprint: str, answer: dict[str, Any]) -> None:
        context = caller.context
        claim = KeyClaim(caller.who.user_id, stored_key(key), fingerprint, "", None, context.clock.now(), answer)
        async with context.store.write() as connection:
            await idempotency.keep_answer(connection, claim)


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
