"""The warm pool: machines started in advance, so that a create only needs to claim one.

The provider holds them and hands each out at most once, inside ``create``. This module only decides how many of which
shape to keep, and starts or stops them in the background. It has no persistent state: machines left warm by a crash are
found again and counted.

Several servers on one provider share its warm machines, as many as the largest target among them. Each publishes its
target in its row of ``servers``, and none stops a machine that another living server still wants.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from paddock.clock import Clock, Pace
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.errors import PaddockError, StoreUnavailable
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import with_timeout
from paddock.providers.base import Provider, Resources, SandboxSpec, Shape
from paddock.settings import Settings
from paddock.store import servers
from paddock.store.database import Store

log = structlog.get_logger(__name__)

_CHECK_INTERVAL_S = 5.0
_MIN_RETRY_S, _MAX_RETRY_S = 1.0, 60.0
_REFILL_DELAY_S = 0.02
_UNHURRIED_REFILL_DELAY_S = 0.2
_MAX_WAIT_FOR_CREATES_S = 0.5
"""How long a refill waits for running creates. Limited, or a busy server would never refill."""

_DEMAND_DECAY_S = 120.0
"""Time constant of the decay of demand: after this time a create counts for 1/e."""
_MIN_DEMAND = 0.05

K = TypeVar("K")

Kind = tuple[str, Shape]
"""A provider's name, and a shape of its machines."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    ready: int
    wanted: int


@dataclass(slots=True)
class _Backoff:
    pause: float
    until: float


class Demand(Generic[K]):
    """Recent demand per kind: each request adds one, and the sum decays exponentially."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._demand: dict[K, tuple[float, float]] = {}

    def note(self, kind: K) -> None:
        self._demand[kind] = (self._now(kind) + 1, self._clock.now())

    def expected(self) -> dict[K, int]:
        """How many more requests of each kind to expect soon. A single request predicts nothing."""
        for kind in [kind for kind in self._demand if self._now(kind) < _MIN_DEMAND]:
            del self._demand[kind]
        return {kind: max(0, math.ceil(self._now(kind)) - 1) for kind in self._demand}

    def _now(self, kind: K) -> float:
        demand, at = self._demand.get(kind, (0.0, 0.0))
        # If the clock was set back, the value neither decays nor grows.
        return demand * math.exp(-max(0.0, self._clock.now() - at) / _DEMAND_DECAY_S)


class Pool:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: Store,
        providers: Mapping[str, Provider],
        nodes: Nodes,
        server_id: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._providers = providers
        self._nodes = nodes
        self._server_id = server_id
        self._demand: Demand[Kind] = Demand(clock)
        self._defaults: dict[str, Kind] = {}
        self._ready: dict[Kind, int] = {}
        self._making: dict[Kind, int] = {}
        self._backoffs: dict[Kind, _Backoff] = {}
        self._published: Any = None
        self._waiting = False
        self._creates = 0
        self._looking = asyncio.Lock()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._woken = asyncio.Event()

    @property
    def on(self) -> bool:
        return self._settings.pool_size > 0

    def stock(self) -> PoolStatus | None:
        """Counts as of the last check; None if the pool is off."""
        if not self.on:
            return None
        return PoolStatus(sum(self._ready.values()), sum(self._targets().values()))

    @contextmanager
    def serving(self, provider: Provider, spec: SandboxSpec) -> Iterator[None]:
        """While the context is open a create runs and refills wait. Afterwards its shape counts as demand."""
        self._creates += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._creates -= 1
            if not self._creates:
                self._quiet.set()
            shape = provider.shape_of(spec) if self.on else None
            if shape is not None:
                self._demand.note((provider.name, shape))
                self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, pace: Pace) -> None:
        while True:
            await self.tick()
            if not self.on or not await self._rest(pace):
                return
            # The response to the create that woke this loop, and creates that arrive with it, go first.
            await asyncio.sleep(_REFILL_DELAY_S)
            if await self._can_wait():
                await asyncio.sleep(_UNHURRIED_REFILL_DELAY_S)
            await self._wait_for_creates()
            self._woken.clear()

    async def _can_wait(self) -> bool:
        """True while every shape has a ready machine: the refill then waits for the first commands of the sandbox just
        created."""
        try:
            await self._look()
        except PaddockError:
            return False  # the next round reports it
        return all(self._ready.get(kind) for kind in self._targets())

    async def tick(self) -> None:
        """One round: count, start what is missing, stop one surplus machine of each shape."""
        try:
            await self._learn_defaults()
            await self._look()
            await self._publish()
            await self._fill()
            await self._shrink()
        except PaddockError as error:
            if not self._waiting:
                log.warning("the pool has to wait", problem=str(error)[:300])
            self._waiting = True
        except Exception:
            log.exception("the pool met a defect")
        else:
            self._waiting = False

    async def drain(self) -> None:
        """Stop warm machines that no other server wants. This server's target is withdrawn first, so that of two
        servers that stop at the same time the last one finds no target left."""
        try:
            await self._publish(None)
            others = await self._wanted_by_others()
        except StoreUnavailable:
            log.warning("the pool is left as it is: whether another server wants it cannot be asked")
            return
        try:
            async with asyncio.timeout(max(1.0, self._settings.drain_timeout)):
                await self._look()
                for kind, ready in self._ready.items():
                    await self._cool(kind, ready - others.get(kind, 0))
        except Exception as error:  # noqa: BLE001 - no provider error may keep the server from stopping
            log.warning("the pool could not be drained; the next start counts it as stock", problem=str(error)[:300])

    # Targets

    def _targets(self) -> dict[Kind, int]:
        """Targets by demand; for default shapes at least the configured size; all together within the limit."""
        if not self.on:
            return {}
        targets = self._demand.expected()
        for kind in self._defaults.values():
            targets[kind] = max(self._settings.pool_size, targets.get(kind, 0))
        left = self._settings.pool_max
        defaults = set(self._defaults.values())
        for kind in sorted(targets, key=lambda kind: (kind not in defaults, -targets[kind])):
            targets[kind] = min(targets[kind], left)
            left -= targets[kind]
        return {kind: count for kind, count in targets.items() if count}

    async def _learn_defaults(self) -> None:
        """The default shape of each provider: that of a create without options."""
        if not self.on:
            return
        for provider in self._providers.values():
            if provider.name not in self._defaults:
                templates = await self._call(provider.templates(), "templates")
                limits = self._settings
                resources = Resources(
                    limits.default_cpu, limits.default_memory_mb, limits.default_disk_mb, limits.default_pids
                )
                egress = EgressPolicy(EgressMode(limits.default_egress))
                shape = provider.shape_of(SandboxSpec("", "", "", "", templates[0], resources=resources, egress=egress))
                if shape is not None:
                    self._defaults[provider.name] = (provider.name, shape)

    async def _publish(self, *nothing: None) -> None:
        targets = None if nothing else _to_json(self._targets(), self._nodes) or None
        # On SQLite there is no other server.
        if targets != self._published and not self._store.sqlite:
            async with self._store.write() as connection:
                await servers.want(connection, self._server_id, targets)
            self._published = targets

    async def _wanted_by_others(self) -> dict[Kind, int]:
        if self._store.sqlite:
            return {}
        async with self._store.read() as connection:
            published = await servers.wanted_by_others(
                connection, self._server_id, self._clock.now(), self._settings.server_ttl
            )
        wanted: dict[Kind, int] = {}
        for targets in published:
            for kind, count in _from_json(targets, self._nodes).items():
                wanted[kind] = max(count, wanted.get(kind, 0))
        return wanted

    # Warm machines

    async def _look(self) -> None:
        async with self._looking:  # an older count must not overwrite a newer one
            ready: dict[Kind, int] = {}
            for provider in self._providers.values():
                found = await self._call(provider.warmed(), "warmed")
                ready |= {(provider.name, shape): count for shape, count in found.items() if count}
            self._ready = ready

    async def _fill(self) -> None:
        """Start at most one machine per core at a time; each worker checks again before it starts another."""
        async with asyncio.TaskGroup() as group:
            for _ in range(os.cpu_count() or 1):
                group.create_task(self._make_missing())

    async def _make_missing(self) -> None:
        while (kind := self._missing()) is not None:
            self._making[kind] = self._making.get(kind, 0) + 1
            try:
                await self._wait_for_creates()
                if await self._make(kind):
                    await self._look()
            finally:
                self._making[kind] -= 1

    def _missing(self) -> Kind | None:
        for kind, count in self._targets().items():
            there = self._ready.get(kind, 0) + self._making.get(kind, 0)
            if there < count and not self._resting(kind):
                return kind
        return None

    async def _wait_for_creates(self) -> None:
        try:
            async with asyncio.timeout(_MAX_WAIT_FOR_CREATES_S):
                await self._quiet.wait()
        except TimeoutError:
            return

    async def _make(self, kind: Kind) -> bool:
        try:
            await self._call(self._providers[kind[0]].warm(kind[1]), "warm")
        except Exception as error:  # noqa: BLE001 - the pool is optional, creates work without it
            self._failed(kind, error)
            return False
        if self._backoffs.pop(kind, None):
            log.info("the pool fills again", provider=kind[0], template=kind[1].template_id)
        return True

    def _failed(self, kind: Kind, error: Exception) -> None:
        """Retry after a growing pause. Logged once, not at every attempt."""
        before = self._backoffs.get(kind)
        if before is None:
            log.warning(
                "the pool cannot be filled; creates take longer until it can",
                provider=kind[0],
                template=kind[1].template_id,
                problem=str(error)[:300],
            )
        pause = min(_MAX_RETRY_S, before.pause * 2) if before else _MIN_RETRY_S
        self._backoffs[kind] = _Backoff(pause, self._clock.now() + pause)

    def _resting(self, kind: Kind) -> bool:
        trouble = self._backoffs.get(kind)
        # A time further away than the pause means that the clock was set back.
        return trouble is not None and 0 < trouble.until - self._clock.now() <= trouble.pause

    async def _shrink(self) -> None:
        """Stop at most one machine of each shape per round, so that most are still there after a short drop
        in demand."""
        targets = self._targets()
        surplus = [kind for kind, ready in self._ready.items() if ready > targets.get(kind, 0)]
        others = await self._wanted_by_others() if surplus else {}
        for kind in surplus:
            if self._ready[kind] > others.get(kind, 0):
                await self._cool(kind, 1 if self.on else self._ready[kind])

    async def _cool(self, kind: Kind, count: int) -> None:
        provider = self._providers.get(kind[0])
        if provider is not None and count > 0:
            await self._call(provider.cool(kind[1], count), "cool")
            self._ready[kind] = max(0, self._ready[kind] - count)

    async def _call(self, awaitable: Any, step: str) -> Any:
        return await with_timeout(self._settings.provider_timeout, awaitable, step)

    async def _rest(self, pace: Pace) -> bool:
        """Wait for news or the interval. False: this was the last round."""
        waits = [asyncio.ensure_future(pace.rest(_CHECK_INTERVAL_S)), asyncio.ensure_future(self._woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return not pace.stopped


def _to_json(targets: Mapping[Kind, int], nodes: Nodes) -> list[list[Any]]:
    """Keyed by node, since each node has its own warm machines."""
    return sorted(
        [nodes.of(name) or name, shape.template_id, shape.disk_mb, count] for (name, shape), count in targets.items()
    )


def _from_json(targets: Any, nodes: Nodes) -> dict[Kind, int]:
    """Another server's targets for this server's nodes; empty if they cannot be read, as from another version."""
    names = {nodes.of(name): name for name in nodes.providers}
    try:
        return {
            (names[node], Shape(template, disk)): int(count) for node, template, disk, count in targets if node in names
        }
    except (TypeError, ValueError):
        log.warning("the targets of another server cannot be read")
        return {}
