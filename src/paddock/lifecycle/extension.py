"""Extension point: a vendor's facade adds its own semantics of pause, resume and timeouts here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paddock.clock import Clock
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.engine import Engine
from paddock.lifecycle.journal import Journal
from paddock.lifecycle.transitions import Transitions
from paddock.models import State
from paddock.settings import Settings
from paddock.store import sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """The parts that native operations also use."""

    settings: Settings
    clock: Clock
    store: Store
    controller: Controller
    transitions: Transitions
    engine: Engine
    journal: Journal


class LifecycleExtension:
    """Base class. A server makes one instance of each subclass at first use: ``ServerContext.extension``."""

    def __init__(self, parts: LifecycleParts) -> None:
        self._settings = parts.settings
        self._clock = parts.clock
        self._store = parts.store
        self._controller = parts.controller
        self._transitions = parts.transitions
        self._engine = parts.engine
        self._journal = parts.journal

    async def _drop_memory(self, sandbox: SandboxRow) -> SandboxRow:
        """Discard a paused sandbox's memory and keep its files. The caller holds the sandbox's lock."""
        if sandbox.state is not State.PAUSED or not sandbox.memory_kept:
            return sandbox
        provider = self._engine.provider_of(sandbox)
        await self._engine.call(provider.pause(sandbox.sandbox_id, keep_memory=False), "pause")
        async with self._store.write() as connection:
            await sandboxes.patch(connection, sandbox.sandbox_id, memory_kept=False)
        return replace(sandbox, memory_kept=False)
