"""Records of a sandbox's connections, refused ones included: totals of everything, and the latest connections."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from paddock.clock import Clock, SystemClock
from paddock.egress.bandwidth import Bandwidth
from paddock.egress.policy import EgressPolicy

LATEST = 256
_MIN_REPORTED_DELAY_S = 0.1
"""Shorter waits are not mentioned."""


@dataclass(frozen=True, slots=True)
class EgressRecord:
    """One connection that has ended, or was refused."""

    at: float
    host: str
    address: str | None
    """None: it was refused, or failed, before an address was known."""
    port: int
    allowed: bool
    reason: str
    bytes_up: int
    bytes_down: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EgressTotals:
    connections: int = 0
    """All attempts, including denied ones."""
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
    """A connection in progress, until ``end``. Its bytes are counted here."""

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
        """Wait until the user's bandwidth allows more; returns how many bytes."""
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
        """Charge bytes that arrived but were not read: they have used bandwidth."""
        self._bandwidth.charge(max(0, arrived - self.bytes_down))

    def end(self, reason: str, *, allowed: bool = True) -> None:
        """Only the first call has an effect: later reasons are consequences of the first."""
        if self._ended:
            return
        self._ended = True
        seconds = time.monotonic() - self._started
        if self._slowed >= _MIN_REPORTED_DELAY_S and self._bandwidth.megabits:
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
    """Counts all connections of one sandbox and keeps the latest records. Totals, including bytes, are always
    current."""

    def __init__(self, *, clock: Clock | None = None, latest: int = LATEST, on_record: OnRecord | None = None) -> None:
        self.bandwidth = Bandwidth()
        """Of the sandbox's owner; unlimited unless set."""
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
