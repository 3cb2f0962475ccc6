"""What happened when, by the clock of this test: when servers could work, and when clients used a sandbox."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Span = tuple[float, float]


class Spans:
    """Stretches of time of which each begins and ends; the last may still last."""

    def __init__(self) -> None:
        self._ended: list[Span] = []
        self._since: float | None = None

    def begin(self) -> None:
        self.end()
        self._since = time.time()

    def end(self) -> None:
        if self._since is not None:
            self._ended.append((self._since, time.time()))
            self._since = None

    @contextmanager
    def during(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def lasted(self) -> float:
        """Seconds since the one began that lasts; 0: none does."""
        return 0.0 if self._since is None else time.time() - self._since

    def __len__(self) -> int:
        return len(self._ended) + (self._since is not None)

    def all(self) -> list[Span]:
        return [*self._ended, *([] if self._since is None else [(self._since, time.time())])]


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time, in order and each moment once."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def without(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    left = union(spans)
    for begin, over in union(holes):
        parts = ((part for part in ((start, min(end, begin)), (max(start, over), end))) for start, end in left)
        left = [(start, end) for pair in parts for start, end in pair if start < end]
    return left


def seconds(spans: Iterable[Span], start: float, end: float) -> float:
    """How much of them lies between these moments."""
    return sum(max(0.0, min(end, over) - max(start, begin)) for begin, over in spans)


@dataclass(frozen=True)
class Setting:
    """A timeout that was asked for. ``end`` is infinite where nobody was told whether it was set."""

    start: float
    end: float
    timeout: int


@dataclass(frozen=True)
class Answered:
    """A use that was answered with success: for certain the deadline was put off after it had begun.

    ``share`` of the timeout is certain whoever dies then: all of it where that is what was asked for; half of it where
    a server may keep in mind, and lose, that a deadline far away is a little further (see the journal's touches)."""

    start: float
    end: float
    share: float = 1.0


@dataclass
class Uses:
    """Of one sandbox, as its clients know them. Each puts the deadline off, whether it was answered or not."""

    spans: list[Span] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)

    def longest_timeout(self, at: float) -> int:
        """Which may be in force then: any but those that another one followed for certain."""
        return max(setting.timeout for setting in self._possible(at, at))

    def shortest_timeout(self, start: float, end: float) -> int:
        """Which may have been in force at some time between these."""
        return min(setting.timeout for setting in self._possible(start, end))

    def rests(self, running: Span) -> list[Span]:
        """When nobody used it while it ran."""
        return without([running], self.spans)

    def _possible(self, start: float, end: float) -> list[Setting]:
        before = [setting for setting in self.settings if setting.start <= end]
        followed = max((setting.start for setting in before if setting.end <= start), default=-math.inf)
        return [setting for setting in before if setting.end >= followed]


def overslept(uses: Uses, running: Sequence[Span], working: Sequence[Span], slack_s: float) -> list[str]:
    """Rests that lasted longer than the timeout, of the time in which a server could have ended them."""
    found = []
    for span in running:
        for start, end in uses.rests(span):
            timeout, worked = uses.longest_timeout(start), seconds(working, start, end)
            if worked > timeout + slack_s:
                found.append(
                    f"a timeout of {timeout} s had not struck after {end - start:.1f} s, in {worked:.1f} s of which a "
                    "server could have seen to it"
                )
    return found


def underslept(uses: Uses, strikes: Sequence[float], lives: Sequence[Span], slack_s: float) -> list[str]:
    """Timeouts that struck sooner after an answered use than any that may have been in force lets them.

    ``lives``: of a server that was the only one, and could use its database all the while. Nothing is lost then."""
    found = []
    for at in strikes:
        for use in uses.answered:
            if use.end > at:
                continue
            timeout = uses.shortest_timeout(use.start, at)
            kept = any(begin <= use.start and at <= over for begin, over in lives)
            certain = timeout * (1.0 if kept else use.share)
            if at - use.start < certain - slack_s:
                found.append(
                    f"a timeout of {timeout} s struck {at - use.start:.2f} s after an answered use began, and "
                    f"{certain:g} s are certain"
                )
    return found
