"""Maximum resources of one sandbox: the operator's limit, and never more than the provider's machine has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paddock.clock import Clock
from paddock.errors import Invalid
from paddock.lifecycle.engine import Engine
from paddock.models import ResourceRequest
from paddock.providers.base import Capacity
from paddock.settings import Settings
from paddock.store.records import SandboxRow

_CACHE_TTL_S = 60.0
"""How long a provider's reported capacity is cached: machines and file systems rarely grow."""
_FIELDS = {
    "cpu": ("cores", "PADDOCK_MAX_CPU"),
    "memory_mb": ("MB of memory", "PADDOCK_MAX_MEMORY_MB"),
    "disk_mb": ("MB of disk", "PADDOCK_MAX_DISK_MB"),
    "pids": ("processes", "PADDOCK_MAX_PIDS"),
}


class Capacities:
    def __init__(self, settings: Settings, clock: Clock, engine: Engine) -> None:
        self._settings = settings
        self._clock = clock
        self._engine = engine
        self._known: dict[str, tuple[float, Capacity]] = {}

    async def fit(self, sandbox: SandboxRow, asked: ResourceRequest) -> SandboxRow:
        """Refuse explicit requests above the maximum, and lower defaults to it."""
        has = await self._of(sandbox.provider)
        fitted: dict[str, Any] = {}
        for name, (what, setting) in _FIELDS.items():
            allowed, machine = getattr(self._settings, f"max_{name}"), getattr(has, name)
            most = min((limit for limit in (allowed, machine) if limit), default=None)
            if most is None or getattr(sandbox, name) <= most:
                continue
            wanted = getattr(asked, name)
            if wanted is not None:
                why = f"what its machine has (provider {sandbox.provider!r})" if most == machine else setting
                raise Invalid(
                    f"A sandbox may have at most {_plain(most)} {what} here, {why}; {_plain(wanted)} was asked for.",
                    details={"field": f"resources.{name}", "max": most},
                )
            fitted[name] = most
        return replace(sandbox, **fitted) if fitted else sandbox

    async def _of(self, provider: str) -> Capacity:
        asked_at, known = self._known.get(provider, (0.0, Capacity()))
        if not 0 <= self._clock.now() - asked_at < _CACHE_TTL_S:
            known = await self._engine.call(self._engine.provider(provider).capacity(), "capacity")
            self._known[provider] = (self._clock.now(), known)
        return known


def _plain(amount: float) -> str:
    return f"{amount:g}" if isinstance(amount, float) else str(amount)
