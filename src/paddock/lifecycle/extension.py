"""Extension point: a vendor's facade adds its own semantics of pause, resume and timeouts here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock
from paddock.errors import SandboxNotFound
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.lifecycle.transitions import Transitions
from paddock.models import State, TimeoutAction
from paddock.settings import Settings
from paddock.store import deadlines, sandboxes
from paddock.store.database import Store
from paddock.store.records import Deadline, DeadlineKind, SandboxRow


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """The parts that native operations also use."""

    settings: Settings
    clock: Clock
    store: Store
    controller: Controller
    transitions: Transitions
    engine: Engine
    calls: ProviderCalls
    journal: Journal


class RowEdit:
    """A sandbox's row and deadlines, in a transaction that holds the row's lock."""

    def __init__(self, connection: AsyncConnection, sandbox: SandboxRow, now: float) -> None:
        self.sandbox = sandbox
        self.now = now
        """Read inside the transaction: the clock may have been set before it."""
        self._connection = connection

    async def set(self, **values: Any) -> None:
        await sandboxes.patch(self._connection, self.sandbox.sandbox_id, **values)
        self.sandbox = replace(self.sandbox, **values)

    async def deadline(self, kind: DeadlineKind) -> Deadline | None:
        return await deadlines.get(self._connection, self.sandbox.sandbox_id, kind)

    async def put_deadline(
        self, kind: DeadlineKind, action: TimeoutAction, due_at: float, warn_at: float | None
    ) -> None:
        await deadlines.put(self._connection, self.sandbox.sandbox_id, kind, action, due_at, warn_at)

    async def remove_deadline(self, kind: DeadlineKind) -> None:
        await deadlines.remove(self._connection, self.sandbox.sandbox_id, kind)


class LifecycleExtension:
    """Base class. A server makes one instance of each subclass at first use: ``ServerContext.extension``."""

    def __init__(self, parts: LifecycleParts) -> None:
        self._settings = parts.settings
        self._clock = parts.clock
        self._store = parts.store
        self._controller = parts.controller
        self._transitions = parts.transitions
        self._engine = parts.engine
        self._calls = parts.calls
        self._journal = parts.journal

    @asynccontextmanager
    async def _edit(self, sandbox_id: str) -> AsyncIterator[RowEdit]:
        async with self._store.write() as connection:
            sandbox = await sandboxes.get(connection, sandbox_id, lock=True)
            if sandbox is None:
                raise SandboxNotFound.by_id(sandbox_id)
            yield RowEdit(connection, sandbox, self._clock.now())

    async def _drop_memory(self, sandbox: SandboxRow) -> SandboxRow:
        """Discard a paused sandbox's memory and keep its files. The caller holds the sandbox's lock."""
        if sandbox.state is not State.PAUSED or not sandbox.memory_kept:
            return sandbox
        provider = self._calls.of(sandbox)
        await self._calls.run(provider.pause(sandbox.sandbox_id, keep_memory=False), "pause")
        async with self._edit(sandbox.sandbox_id) as row:
            await row.set(memory_kept=False)
        return replace(sandbox, memory_kept=False)
