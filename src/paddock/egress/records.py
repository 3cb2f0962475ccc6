"""What went out of a sandbox, and what was refused: totals of everything, and the latest connections."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from paddock.clock import Clock, SystemClock
from paddock.egress.bandwidth import Bandwidth
from paddock.egress.policy import EgressPolicy

LATEST = 256
_SLOWED_SECONDS = 0.1
"""Less is not worth a word."""


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """One connection that has ended, or was refused."""

    at: float
    host: str
    address: str | None
    """None: it was refused, or had failed, before there was one."""
    port: int
    allowed: bool
    reason: str
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EgressTotals:
    connections: int = 0
    """Every attempt, the denied ones included."""
    denied: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True, slots=True)
class EgressReport:
    policy: EgressPolicy
    totals: EgressTotals
    latest: tuple[EgressRecord, ...]


OnRecord = Callable[[EgressRecord], None]


class ConnectionEntry:
    """A connection on its way, until ``end``. Whoever moves its bytes counts them here."""

    __slots__ = (
        "_bandwidth", "_ended", "_ledger", "_slowed", "_started", "address", "at", "bytes_down", "bytes_up", "host",
        "port",
    )  # fmt: skip

    def __init__(self, ledger: EgressLedger, host: str, port: int, at: float) -> None:
        self._ledger = ledger
        self._bandwidth = ledger.bandwidth
        self._slowed = 0.0
        self._started = time.monotonic()
        self._ended = False
        self.at = at
        self.host = host
        self.port = port
        self.address: str | None = None
        self.bytes_up = 0
        self.bytes_down = 0

    async def ready(self) -> int:
        """Wait until its user may move more; answers how many bytes."""
        began = time.monotonic()
        count = await self._bandwidth.ready()
        self._slowed += time.monotonic() - began
        return count

    def sent(self, count: int) -> None:
        self.bytes_up += count
        self._ledger.count(up=count)
        self._bandwidth.charge(count)

    def received(self, count: int) -> None:
        self.bytes_down += count
        self._ledger.count(down=count)
        self._bandwidth.charge(count)

    def left_unread(self, arrived: int) -> None:
        """So much came, read or not: it has used the line."""
        self._bandwidth.charge(max(0, arrived - self.bytes_down))

    def end(self, reason: str, *, allowed: bool = True) -> None:
        """The first call counts: what follows from an end says nothing new."""
        if self._ended:
            return
        self._ended = True
        seconds = time.monotonic() - self._started
        if self._slowed >= _SLOWED_SECONDS and self._bandwidth.megabits:
            limit = f"the limit of {self._bandwidth.megabits:g} Mbit/s of its user"
            reason += f" (slowed down for {self._slowed:.1f} s by {limit})"
        self._ledger.keep(
            EgressRecord(
                self.at,
                self.host,
                self.address,
                self.port,
                allowed,
                reason,
                self.bytes_up,
                self.bytes_down,
                round(seconds, 6),
            )
        )


class EgressLedger:
    """Counts everything of one sandbox and keeps the latest records. Totals are true at any moment, bytes included."""

    def __init__(self, *, clock: Clock | None = None, latest: int = LATEST, on_record: OnRecord | None = None) -> None:
        self.bandwidth = Bandwidth()
        """Of the sandbox's owner; no limit unless set."""
        self._clock = clock or SystemClock()
        self._on_record = on_record
        self._totals = EgressTotals()
        self._up = 0
        self._down = 0
        self._latest: deque[EgressRecord] = deque(maxlen=latest)

    @property
    def totals(self) -> EgressTotals:
        return replace(self._totals, bytes_up=self._up, bytes_down=self._down)

    @property
    def latest(self) -> tuple[EgressRecord, ...]:
        """Oldest first."""
        return tuple(self._latest)

    def begin(self, host: str, port: int) -> ConnectionEntry:
        self._totals = replace(self._totals, connections=self._totals.connections + 1)
        return ConnectionEntry(self, host, port, self._clock.now())

    def count(self, *, up: int = 0, down: int = 0) -> None:
        self._up += up
        self._down += down

    def keep(self, record: EgressRecord) -> None:
        if not record.allowed:
            self._totals = replace(self._totals, denied=self._totals.denied + 1)
        self._latest.append(record)
        if self._on_record is not None:
            self._on_record(record)
