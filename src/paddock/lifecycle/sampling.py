"""Samples the resource usage of running sandboxes every few seconds, and keeps an hour of samples in memory.

Sampling does not resume a sandbox or count as activity. A round is spread over its interval, a few sandboxes at a time,
so that hundreds of them cause no load peaks. A restarted server, and each replica, starts without samples.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog

from paddock.clock import Clock, Pace
from paddock.errors import PaddockError, ProviderUnavailable, StoreUnavailable
from paddock.lifecycle.nodes import Nodes
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.machine.base import MachineStats
from paddock.models import State
from paddock.store import sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

INTERVAL = 5.0
_KEPT_SAMPLES = 720
"""Number of samples kept per sandbox: one hour."""
_MAX_CONCURRENT_SAMPLES = 8
_SPREAD = 0.8
"""The part of an interval over which a round is spread."""
_SAMPLE_TIMEOUT_S = 3.0
_MAX_MISSED_SAMPLES = 3
SILENT = "Its agent does not answer. Pausing it keeps its files and ends its processes; deleting it works as ever."
_FIELDS_PER_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class UsageSample:
    at: float
    cpu_percent: float
    """Of the CPU that the sandbox may use."""
    memory_used: int
    memory_cache: int
    disk_used: int


class UsageHistory:
    """The latest samples of one sandbox, stored in an array of a few dozen bytes per sample."""

    def __init__(self) -> None:
        self._values = array("d")
        self._cpu: tuple[float, float] | None = None

    def add(self, stats: MachineStats) -> None:
        used = (stats.memory_used, stats.memory_cache, stats.disk_used)
        self._values.extend((stats.at, self._percent(stats), *used))
        if len(self._values) >= 2 * _KEPT_SAMPLES * _FIELDS_PER_SAMPLE:
            del self._values[: _KEPT_SAMPLES * _FIELDS_PER_SAMPLE]

    @property
    def latest(self) -> UsageSample | None:
        return self._sample(len(self._values) - _FIELDS_PER_SAMPLE) if self._values else None

    def between(self, start: float, end: float) -> Iterator[UsageSample]:
        for place in range(
            max(0, len(self._values) - _KEPT_SAMPLES * _FIELDS_PER_SAMPLE), len(self._values), _FIELDS_PER_SAMPLE
        ):
            if start <= self._values[place] <= end:
                yield self._sample(place)

    def _sample(self, place: int) -> UsageSample:
        at, percent, memory, cache, disk = self._values[place : place + _FIELDS_PER_SAMPLE]
        return UsageSample(at, percent, int(memory), int(cache), int(disk))

    def _percent(self, stats: MachineStats) -> float:
        """CPU use since the last sample; counts from zero if the sandbox was restarted in between."""
        before, self._cpu = self._cpu, (stats.at, stats.cpu_seconds)
        if before is None or stats.at <= before[0] or stats.cpu_count <= 0:
            return 0.0
        spent = max(0.0, stats.cpu_seconds - before[1])
        return round(min(100.0, 100.0 * spent / (stats.at - before[0]) / stats.cpu_count), 2)


class UsageSampler:
    def __init__(self, clock: Clock, store: Store, calls: ProviderCalls, nodes: Nodes) -> None:
        self._clock = clock
        self._store = store
        self._calls = calls
        self._nodes = nodes
        self._histories: dict[str, UsageHistory] = {}
        self._unanswered: dict[str, int] = {}
        """Number of consecutive samples that each sandbox has not answered."""

    async def between(self, sandbox: SandboxRow, start: float = 0.0, end: float = math.inf) -> list[UsageSample]:
        """Samples, oldest first; takes one now if there is none or none recent. Raises if the sandbox lives on another
        node: each server keeps the samples that it takes."""
        await self._refresh(sandbox)
        history = self._histories.get(sandbox.sandbox_id)
        return list(history.between(start, end)) if history else []

    async def latest(self, sandbox: SandboxRow) -> UsageSample | None:
        await self._refresh(sandbox)
        history = self._histories.get(sandbox.sandbox_id)
        return history.latest if history else None

    async def run(self, pace: Pace) -> None:
        while True:
            try:
                rest = await self.round(pace)
            except StoreUnavailable:
                rest = INTERVAL
            except Exception:
                log.exception("a round of samples failed")
                rest = INTERVAL
            if not await pace.rest(rest):
                return

    async def round(self, pace: Pace | None = None) -> float:
        """Sample all running sandboxes; returns the seconds to rest until the next round."""
        async with self._store.read() as connection:
            running = await sandboxes.running(connection, self._nodes.ids)
        self._forget_old()
        self._unanswered = {
            sandbox_id: self._unanswered[sandbox_id] for sandbox_id, _ in running if sandbox_id in self._unanswered
        }
        groups = [
            running[first : first + _MAX_CONCURRENT_SAMPLES]
            for first in range(0, len(running), _MAX_CONCURRENT_SAMPLES)
        ]
        gap = _SPREAD * INTERVAL / max(1, len(groups))
        for group in groups:
            await self._sample_group(group)
            if pace is not None and not await pace.rest(gap):
                return 0.0
        return INTERVAL - gap * len(groups)

    async def _sample_group(self, group: Sequence[tuple[str, str]]) -> None:
        await asyncio.gather(*(self._sample_one(sandbox_id, provider) for sandbox_id, provider in group))

    async def _sample_one(self, sandbox_id: str, provider: str) -> None:
        try:
            machine = await self._calls.run(self._calls.named(provider).attach(sandbox_id), "attach")
            stats = await self._calls.run(machine.stats(), "stats", _SAMPLE_TIMEOUT_S)
        except ProviderUnavailable as problem:
            log.debug("no sample", sandbox_id=sandbox_id, problem=str(problem)[:200])
            await self._not_answered(sandbox_id)
            return
        except PaddockError as problem:  # paused or deleted meanwhile; the reconciler handles other causes
            log.debug("no sample", sandbox_id=sandbox_id, problem=str(problem)[:200])
            return
        except Exception:
            log.exception("a sandbox could not be looked at", sandbox_id=sandbox_id)
            return
        self._histories.setdefault(sandbox_id, UsageHistory()).add(stats)
        if self._unanswered.pop(sandbox_id, 0) >= _MAX_MISSED_SAMPLES:
            await self._write_reason(sandbox_id, None)

    async def _not_answered(self, sandbox_id: str) -> None:
        """One missed sample may be chance; after several in a row the sandbox's status says so."""
        self._unanswered[sandbox_id] = self._unanswered.get(sandbox_id, 0) + 1
        if self._unanswered[sandbox_id] == _MAX_MISSED_SAMPLES:
            log.warning("a sandbox's agent does not answer", sandbox_id=sandbox_id)
            await self._write_reason(sandbox_id, SILENT)

    async def _write_reason(self, sandbox_id: str, reason: str | None) -> None:
        async with self._store.write() as connection:
            row = await sandboxes.get(connection, sandbox_id, lock=True)
            if row is not None and row.state is State.RUNNING and row.reason in (None, SILENT):
                await sandboxes.patch(connection, sandbox_id, reason=reason)

    async def _refresh(self, sandbox: SandboxRow) -> None:
        self._nodes.require(sandbox)
        history = self._histories.get(sandbox.sandbox_id)
        latest = history.latest if history else None
        due = latest is None or self._clock.now() - latest.at >= INTERVAL
        if due and sandbox.state is State.RUNNING:
            await self._sample_one(sandbox.sandbox_id, sandbox.provider)

    def _forget_old(self) -> None:
        before = self._clock.now() - _KEPT_SAMPLES * INTERVAL
        for sandbox_id, history in list(self._histories.items()):
            if history.latest is None or history.latest.at < before:
                del self._histories[sandbox_id]
