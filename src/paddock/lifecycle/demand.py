"""Recent demand per kind: each request adds one, and the sum decays exponentially."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from paddock.clock import Clock

K = TypeVar("K")

_DECAY_TIME_S = 120.0
"""Time constant of the decay: after this time a request counts for 1/e."""
_MIN_DEMAND = 0.05


class Demand(Generic[K]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heat: dict[K, tuple[float, float]] = {}

    def note(self, kind: K) -> None:
        self._heat[kind] = (self._now(kind) + 1, self._clock.now())

    def expected(self) -> dict[K, int]:
        """How many more requests of each kind to expect soon. A single request predicts nothing."""
        for kind in [kind for kind in self._heat if self._now(kind) < _MIN_DEMAND]:
            del self._heat[kind]
        return {kind: max(0, math.ceil(self._now(kind)) - 1) for kind in self._heat}

    def _now(self, kind: K) -> float:
        heat, at = self._heat.get(kind, (0.0, 0.0))
        # If the clock was set back, the value neither decays nor grows.
        return heat * math.exp(-max(0.0, self._clock.now() - at) / _DECAY_TIME_S)
