"""envd's information about the sandbox: health, resource usage, environment variables."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from paddock.api.compat.e2b.envd.inside import EnvdContext
from paddock.machine.base import MachineStats

_MIB = 1 << 20
_MAX_SAMPLES = 4096
_SPAN = 0.05
"""Seconds between two samples if there is no earlier one: CPU usage is a difference."""


class Reports:
    def __init__(self) -> None:
        self._seen: OrderedDict[str, MachineStats] = OrderedDict()

    async def health(self, inside: EnvdContext) -> None:
        await inside.exchange.respond(204, headers={"Cache-Control": "no-store"})

    async def envs(self, inside: EnvdContext) -> None:
        await inside.exchange.respond_json(200, inside.environment(), {"Cache-Control": "no-store"})

    async def metrics(self, inside: EnvdContext) -> None:
        sandbox_id = inside.sandbox.sandbox_id
        before = self._seen.get(sandbox_id)
        now = await inside.machine.stats()
        if before is None or not now.at - before.at > 0 or now.cpu_seconds < before.cpu_seconds:
            await asyncio.sleep(_SPAN)
            before, now = now, await inside.machine.stats()
        self._seen[sandbox_id] = now
        self._seen.move_to_end(sandbox_id)
        if len(self._seen) > _MAX_SAMPLES:
            self._seen.popitem(last=False)
        document = {
            "ts": int(now.at),
            "cpu_count": max(1, round(now.cpu_count)),
            "cpu_used_pct": _percent(before, now),
            "mem_total": now.memory_total,
            "mem_used": now.memory_used,
            "mem_cache": now.memory_cache,
            "mem_total_mib": now.memory_total // _MIB,
            "mem_used_mib": now.memory_used // _MIB,
            "disk_used": now.disk_used,
            "disk_total": now.disk_total,
        }
        await inside.exchange.respond_json(200, document, {"Cache-Control": "no-store"})


def _percent(before: MachineStats, now: MachineStats) -> float:
    """Of all its processors together."""
    passed = now.at - before.at
    if passed <= 0 or now.cpu_count <= 0:
        return 0.0
    return round(min(100.0, 100 * max(0.0, now.cpu_seconds - before.cpu_seconds) / passed / now.cpu_count), 2)
