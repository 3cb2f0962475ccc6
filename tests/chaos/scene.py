"""Everything that one test of this folder has: servers, their store and provider, clients, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from paddock.providers.base import Provider
from paddock.store.database import Store
from tests.chaos.clock import SharedClock
from tests.chaos.faults import Faults
from tests.chaos.herd import Herd
from tests.chaos.slot import Slot

REAL = ("local", "docker")
"""Providers whose sandboxes are real, and whose servers take ten times as long to start."""

_PATIENCE_S = 120.0
"""Of those who ask when the chaos is over."""


@dataclass
class Scene:
    name: str
    home: Path
    slots: list[Slot]
    store: Store
    provider: Provider
    herd: Herd
    clock: SharedClock
    faults: Faults
    places: Counter[str] = field(default_factory=Counter)
    """Where servers died."""
    refusals: int = 0
    """Starts that a fault made impossible."""

    @property
    def alone(self) -> bool:
        """One server, which goes on counting when the clock is set."""
        return len(self.slots) == 1

    @property
    def real(self) -> bool:
        return self.provider.name in REAL

    @property
    def loses_commands(self) -> bool:
        return self.real

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers={"X-API-Key": self.herd.api_key}, timeout=_PATIENCE_S)

    async def start_all(self) -> None:
        await asyncio.gather(*(slot.start(fuse=None) for slot in self.slots))

    async def first_sandbox(self) -> None:
        """The first one makes the layers of its template, for which a server that dies every second never has the
        time."""
        slot = self.slots[0]
        await slot.start(fuse=None)
        async with self.client() as client:
            answer = await client.post(f"{slot.url}/sandboxes/create", json={"user_id": "first"})
            assert answer.status_code == 200, answer.text
        await slot.dead(within=0)

    async def rampage(self, kills: int) -> None:
        """Servers die and come back until enough have died; clients go on all the while, and so do other faults."""
        stop = asyncio.Event()
        grazing = asyncio.create_task(self.herd.graze(6, stop))
        faults = asyncio.create_task(self.faults.inject(stop))
        try:
            await asyncio.gather(*(self._kill_again_and_again(slot, kills) for slot in self.slots))
        finally:
            stop.set()
            await grazing
            await faults

    async def _kill_again_and_again(self, slot: Slot, kills: int) -> None:
        rng = self.herd.rng
        while self.places.total() < kills:
            hampered, troubles = self.faults.hampered, self.faults.troubles
            await slot.start(fuse=rng.randint(3, 90))
            enough = self.herd.answers + rng.randint(5, 40)
            place = await slot.dead(rng.uniform(0.3, 1.5), lambda: self.herd.answers >= enough)  # noqa: B023
            if not slot.gave_up:
                self.places[place] += 1
            elif hampered or self.faults.troubles > troubles:
                self.refusals += 1
                await asyncio.sleep(0.1)
            else:
                self.herd.surprises.append("a server ended by itself")

    def report(self) -> list[str]:
        herd, faults = self.herd, self.faults.done
        counts = sorted(self.places.items()) + [(name, count) for name, count in sorted(faults.items())]
        if self.refusals:
            counts.append(("starts refused meanwhile", self.refusals))
        return [
            f"{self.name}: {self.places.total()} kills, {faults.total()} other faults; {len(herd.promises)} sandboxes "
            f"promised, {herd.answered.total()} keyed commands answered, {herd.bytes_read / 1e6:.1f} MB of output "
            f"read, {herd.bytes_missing / 1e6:.1f} MB said to be missing",
            *(f"  {count:5d}  {name}" for name, count in counts),
            "  not answered with success: "
            + ", ".join(f"{count} × {name}" for name, count in herd.refused.most_common()),
        ]
