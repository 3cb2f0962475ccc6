"""Everything that one test of this folder has: servers, their store and provider, clients, and what goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field

import httpx

from paddock.providers.base import MachineInfo, Provider
from paddock.store import sqlite
from paddock.store.database import Store
from paddock.store.records import SandboxRow
from tests.chaos.clock import SharedClock
from tests.chaos.faults import Faults
from tests.chaos.herd import Herd
from tests.chaos.server import Length
from tests.chaos.slot import Slot
from tests.chaos.table import Report
from tests.chaos.timeline import Span, union, without

_LIVES_S = (0.0, 0.0, 0.0, 0.5, 2.5)
"""How long a server lives at least that no step ends: often as long as some requests take, at times long enough for
sweeps and deadlines."""
_CALM_ANSWERS = 150
_CALM_S = 60.0
_USAGE_S = 20.0
"""So long a question for usage may take, on a machine where everything takes long."""
_PATIENCE_S = 120.0
"""Of those who ask when the chaos is over."""


@dataclass
class Scene:
    name: str
    slots: list[Slot]
    store: Store
    """Opened by the judge: while somebody else looks into a database, no server that starts removes SQLite's log."""
    providers: list[Provider]
    """One for each home."""
    herd: Herd
    clock: SharedClock
    faults: Faults
    seed: int
    places: Counter[str] = field(default_factory=Counter)
    """Where servers died."""
    refusals: int = 0
    """Starts that a fault made impossible."""
    largest_log: int = 0
    """Bytes of SQLite's write-ahead log, at the most."""
    slowest_usage_s: float = 0.0
    """Of those that were asked while nobody died."""
    rampage_s: float = 0.0
    starting_s: float = 0.0
    """Of that, until a server that was started had answered or died, of all servers together."""
    verdicts: dict[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return len(self.slots) == 1

    @property
    def keeps_time(self) -> bool:
        """Servers with a node of their own move what is theirs when the clock is set. Those that share one need clocks
        that agree all the time."""
        return self.own_nodes or not self.faults.sets_clock

    @property
    def own_nodes(self) -> bool:
        return len(self.providers) == len(self.slots)

    def slots_of(self, row: SandboxRow) -> list[Slot]:
        """The servers that can see to this sandbox."""
        if self.alone or not self.own_nodes:
            return self.slots
        return [
            slot for slot in self.slots if row.node_id == f"{row.provider}-{(slot.home / 'node').read_text().strip()}"
        ]

    async def machines(self) -> list[MachineInfo]:
        return [found for provider in self.providers for found in await provider.list()]

    def working(self, row: SandboxRow) -> list[Span]:
        """When there was a server that could see to its deadlines."""
        able = [without(slot.served.all(), slot.stood_still.all()) for slot in self.slots_of(row)]
        return without(union(span for spans in able for span in spans), self.faults.troubles.all())

    def steady_lives(self, row: SandboxRow) -> list[Span]:
        """When the same server saw to it, alone, and its database could be used."""
        slots, holes = self.slots_of(row), self.faults.troubles.all()
        if len(slots) != 1:
            return []
        return [life for lived in slots[0].served.all() for life in without([lived], holes)]

    def log_bytes(self) -> int:
        return sqlite.wal_bytes(self.store.file) if self.store.file else 0

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers={"X-API-Key": self.herd.api_key}, timeout=_PATIENCE_S)

    async def start_all(self) -> None:
        await asyncio.gather(*(slot.start(fuse=None) for slot in self.slots))

    async def first_sandbox(self) -> None:
        """The first one makes the layers of its template, for which a server that dies every second never has the
        time."""
        for slot in self.slots:
            await slot.start(fuse=None)
            async with self.client() as client:
                answer = await client.post(f"{slot.url}/sandboxes/create", json={"user_id": "first"})
                assert answer.status_code == 200, answer.text
            await slot.dead(within=0)

    async def rampage(self, kills: int) -> None:
        """Servers die and come back until enough have died; clients go on all the while, and so do other faults."""
        stop, began = asyncio.Event(), time.monotonic()
        grazing = asyncio.create_task(self.herd.graze(6, stop))
        faults = asyncio.create_task(self.faults.inject(stop))
        try:
            async with self._watching_log():
                await asyncio.gather(*(self._kill_again_and_again(slot, kills) for slot in self.slots))
        finally:
            self.rampage_s = time.monotonic() - began
            stop.set()
            await grazing
            await faults

    async def calm(self) -> None:
        """Nobody dies, and clients go on, also while the clock is set once more: what is asked for beside them is
        answered, and soon."""
        stop, enough = asyncio.Event(), self.herd.successes + _CALM_ANSWERS
        grazing = asyncio.create_task(self.herd.graze(6, stop))
        until = time.monotonic() + _CALM_S
        try:
            async with self._watching_log(), self.client() as client:
                if self.keeps_time and self.faults.sets_clock:
                    await self.faults.set_clock()
                while self.herd.successes < enough and time.monotonic() < until:
                    await asyncio.gather(*(self._ask_usage(client, slot) for slot in self.slots))
        finally:
            stop.set()
            await grazing

    async def _ask_usage(self, client: httpx.AsyncClient, slot: Slot) -> None:
        answered = self.herd.answered.total()
        began = time.monotonic()
        try:
            async with asyncio.timeout(_USAGE_S):
                answer = await client.get(f"{slot.url}/usage")
        except TimeoutError:
            self.herd.surprises.append(f"GET /usage did not answer within {_USAGE_S} s")
            return
        self.slowest_usage_s = max(self.slowest_usage_s, time.monotonic() - began)
        counted = answer.json()["total"]["commands"] if answer.status_code == 200 else None
        # Another server's own notes are written within a moment, and read by nobody else until then.
        if counted is None or (self.alone and counted < answered):
            self.herd.surprises.append(
                f"{answered} commands were answered, and then: {answer.status_code} {answer.text}"
            )

    @contextlib.asynccontextmanager
    async def _watching_log(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                self.largest_log = max(self.largest_log, self.log_bytes())
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _kill_again_and_again(self, slot: Slot, kills: int) -> None:
        rng = self.herd.rng
        while self.places.total() < kills:
            hampered, troubles = self.faults.hampered, len(self.faults.troubles)
            around_calls, began = rng.random() < 0.5, time.monotonic()
            await slot.start(fuse=Length(rng.randint(1, 8), True) if around_calls else Length(rng.randint(3, 90)))
            self.starting_s += time.monotonic() - began
            enough = self.herd.answers + rng.randint(5, 40)
            place = await slot.dead(rng.choice(_LIVES_S), lambda: self.herd.answers >= enough)  # noqa: B023
            if not slot.gave_up:
                self.places[place] += 1
            elif hampered or len(self.faults.troubles) > troubles:
                self.refusals += 1
                await asyncio.sleep(0.1)
            else:
                self.herd.surprises.append(f"a server ended by itself:\n{slot.last_errors()}")

    async def verdict(self, name: str, judging: Awaitable[None]) -> None:
        """What a judge finds, for the table; what he finds wrong fails the test."""
        self.verdicts[name] = "FAILED"
        await judging
        self.verdicts[name] = "held"

    def report(self) -> Report:
        herd, faults = self.herd, self.faults
        done = faults.count()
        if self.refusals:
            done["starts refused meanwhile"] = self.refusals
        return {
            "kills": {
                "all": self.places.total(),
                "seconds each": self.rampage_s / max(1, self.places.total()),
                "seconds of a start": self.starting_s / max(1, self.places.total() + self.refusals),
            },
            "kills by steps": dict(self.places),
            "other faults": {"all": faults.total, **dict(sorted(done.items()))},
            "clients": {
                "sandboxes promised": len(herd.promises),
                "requests answered": herd.answers,
                "keyed commands answered": herd.answered.total(),
                "output read, KB": herd.bytes_read // 1000,
                "output said to be missing, KB": herd.bytes_missing // 1000,
                "slowest GET /usage, s": self.slowest_usage_s,
                "largest write-ahead log, MB": self.largest_log / 1e6,
            },
            "not answered with success": dict(herd.refused.most_common()),
            "verdicts": dict(self.verdicts),
            "to repeat it": {"CHAOS_SEED": str(self.seed)},
        }
