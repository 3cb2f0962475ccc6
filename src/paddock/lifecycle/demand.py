"""How much each kind of thing is asked for lately: every ask counts one, and fades."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from paddock.clock import Clock

K = TypeVar("K")

_FADE_SECONDS = 120.0
"""After this much time an ask counts for a third."""
_FORGOTTEN = 0.05


class Demand(Generic[K]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heat: dict[K, tuple[float, float]] = {}

    def note(self, kind: K) -> None:
        self._heat[kind] = (self._now(kind) + 1, self._clock.now())

    def expected(self) -> dict[K, int]:
        """How many more may be asked for soon. One ask alone says nothing about the next."""
        for kind in [kind for kind in self._heat if self._now(kind) < _FORGOTTEN]:
            del self._heat[kind]
        return {kind: max(0, math.ceil(self._now(kind)) - 1) for kind in self._heat}

    def _now(self, kind: K) -> float:
        heat, at = self._heat.get(kind, (0.0, 0.0))
        # A clock that was set back fades nothing, and does not heat either.
        return heat * math.exp(-max(0.0, self._clock.now() - at) / _FADE_SECONDS)
