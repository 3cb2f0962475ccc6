"""When a call may be made again, and after how long. Pure: no clock is read and no time is spent in here but by the
functions that were handed in.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from enum import Enum

from paddock.client.errors import AnswerLost, ServerUnreachable
from paddock.errors import PaddockError, ProviderRefused, TooManyRequests, Unavailable

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Repeat(Enum):
    SAFE = "safe"
    """Twice is the same as once: a read, an idempotent write, or a call that carries an idempotency key."""
    UNSENT = "unsent"
    """Only while nothing of it has reached the server."""


class Tries:
    """The tries of one call: how many are left, how long is left, how long to pause."""

    def __init__(
        self, repeat: Repeat, retries: int, patience: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._repeat = repeat
        self._retries = retries
        self._patience = patience
        self._now = now
        self._deadline = now() + patience
        self._done = 0

    @property
    def time_left(self) -> float:
        """What one more try may take. Never nothing, so that a try that was begun has a chance."""
        return max(0.1, self._deadline - self._now())

    def pause_after(self, error: PaddockError) -> float | None:
        """Seconds to wait before the next try; None when there is to be none."""
        if self._done >= self._retries or not worth_repeating(error, self._repeat):
            return None
        pause = backoff(self._done, error.retry_after)
        if self._now() + pause >= self._deadline:
            return None
        self._done += 1
        return pause

    def progressed(self) -> None:
        """Something came: the next failure is a first one again."""
        self._done = 0
        self._deadline = self._now() + self._patience


def worth_repeating(error: PaddockError, repeat: Repeat) -> bool:
    if isinstance(error, ServerUnreachable) and not isinstance(error, AnswerLost):
        return True
    if repeat is Repeat.UNSENT or isinstance(error, ProviderRefused):
        return False
    if isinstance(error, TooManyRequests):
        return error.retry_after is not None
    return isinstance(error, Unavailable)


def backoff(done: int, retry_after: float | None = None) -> float:
    """Exponential with full jitter, which spreads load; never sooner than the server asked for."""
    jitter = random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**done))  # noqa: S311
    return jitter if retry_after is None else retry_after + jitter
