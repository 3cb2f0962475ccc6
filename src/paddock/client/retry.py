"""Decides whether and when a call is retried. Pure functions: clock and sleep are passed in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from enum import Enum

from paddock.client.errors import AnswerLost, ServerUnreachable
from paddock.errors import PaddockError, ProviderRefused, TooManyRequests, Unavailable

FIRST_PAUSE = 0.1
MAX_PAUSE_S = 5.0


class Repeat(Enum):
    SAFE = "safe"
    """Repeating has no further effect: a read, an idempotent write, or a call with an idempotency key."""
    UNSENT = "unsent"
    """Retried only if nothing was sent to the server."""


class Tries:
    """The tries of one call: remaining number, remaining time, and the pause before the next."""

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
        """Timeout of the next try. Has a lower bound, so that every try can succeed."""
        return max(0.1, self._deadline - self._now())

    def pause_after(self, error: PaddockError) -> float | None:
        """Seconds to wait before the next try; None if there is none."""
        if self._done >= self._retries or not is_retryable(error, self._repeat):
            return None
        pause = backoff(self._done, error.retry_after)
        if self._now() + pause >= self._deadline:
            return None
        self._done += 1
        return pause

    def progressed(self) -> None:
        """Data was received: the number of tries starts again."""
        self._done = 0
        self._deadline = self._now() + self._patience


def is_retryable(error: PaddockError, repeat: Repeat) -> bool:
    if isinstance(error, ServerUnreachable) and not isinstance(error, AnswerLost):
        return True
    if repeat is Repeat.UNSENT or isinstance(error, ProviderRefused):
        return False
    if isinstance(error, TooManyRequests):
        return error.retry_after is not None
    return isinstance(error, Unavailable)


def backoff(done: int, retry_after: float | None = None) -> float:
    """Exponential with full jitter, which spreads load; at least the time that the server requested."""
    jitter = random.uniform(0, min(MAX_PAUSE_S, FIRST_PAUSE * 2**done))  # noqa: S311
    return jitter if retry_after is None else retry_after + jitter
