"""Idempotency keys: a repeated request has no second effect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.accounts.accounts import Principal
from paddock.clock import Clock
from paddock.errors import IdempotencyMismatch
from paddock.store import idempotency, sandboxes
from paddock.store.database import Store
from paddock.store.records import KeyClaim, SandboxRow

REMEMBERED_S = 86_400.0
REMEMBERED_KEYS = 100_000
"""Per user, the most recent."""


class Idempotency:
    def __init__(self, clock: Clock, store: Store) -> None:
        self._clock = clock
        self._store = store

    async def claim(self, who: Principal, key: str, fingerprint: str, sandbox_id: str, process_id: str) -> str:
        """The process id for this key: the new one, or that of the first request with the key."""
        async with self._store.write() as connection:
            claim = await self.claim_in(connection, who, key, fingerprint, sandbox_id, process_id)
        return claim.process_id or process_id

    async def claim_in(
        self,
        connection: AsyncConnection,
        who: Principal,
        key: str,
        fingerprint: str,
        sandbox_id: str,
        process_id: str | None,
    ) -> KeyClaim:
        """The same, in a transaction that also writes what the key stands for."""
        new = KeyClaim(who.user_id, key, fingerprint, sandbox_id, process_id, self._clock.now())
        claim = await idempotency.claim(connection, new)
        if claim.fingerprint != fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was used for a different request. Use a new key.")
        return claim

    async def find(self, who: Principal, key: str) -> tuple[KeyClaim, SandboxRow | None] | None:
        """The claim that holds the key, if it is not too old to count, and the sandbox that it created."""
        async with self._store.read() as connection:
            claim = await idempotency.find(connection, who.user_id, key)
            if claim is None or claim.created_at < self._clock.now() - REMEMBERED_S:
                return None
            return claim, await sandboxes.get(connection, claim.sandbox_id)

    async def keep_answer(self, who: Principal, key: str, fingerprint: str, answer: Mapping[str, Any]) -> None:
        """Store the response to a request that created nothing."""
        claim = KeyClaim(who.user_id, key, fingerprint, "", None, self._clock.now(), answer)
        async with self._store.write() as connection:
            await idempotency.keep_answer(connection, claim)


def fingerprint(kind: str, request: BaseModel) -> str:
    """Equal for equivalent requests, whatever the key order or whitespace of their JSON."""
    canonical = json.dumps(request.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(f"{kind}\n{canonical}".encode()).hexdigest()
