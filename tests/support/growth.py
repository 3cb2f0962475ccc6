"""Whether a cost grows faster than its input, by the CPU time of the thread that does the work, which no busy neighbour
changes much."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Input = TypeVar("Input")

TIMES_LARGER = 4
MAX_RATIO = 9.0
"""Of the costs. Linear work has 4; work that grows with the square, 16."""
_FREE_SECONDS = 0.02
"""What costs less than this at the larger size is not worth a question."""
_TRIES = 12
"""Somebody else's work only ever adds to a cost: the least of many is the nearest to the truth. They end with the first
that shows linear growth, which work that grows with the square never does."""


def assert_linear(make: Callable[[int], Input], work: Callable[[Input], object], size: int) -> None:
    """``work`` on what ``make`` makes of a size, and of four times that size."""
    small, large = make(size), make(TIMES_LARGER * size)
    growth = _Growth()
    while growth.unclear:
        growth.add(_cost(small, work), _cost(large, work))
    growth.judge()


async def assert_linear_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> None:
    growth = _Growth()
    while growth.unclear:
        growth.add(await _cost_async(make, work, size), await _cost_async(make, work, TIMES_LARGER * size))
    growth.judge()


class _Growth:
    def __init__(self) -> None:
        self._tries = 0
        self._small = self._large = math.inf

    def add(self, small: float, large: float) -> None:
        self._tries += 1
        self._small, self._large = min(self._small, small), min(self._large, large)

    @property
    def _ratio(self) -> float:
        return self._large / max(self._small, 1e-4)

    @property
    def _is_linear(self) -> bool:
        return self._large <= _FREE_SECONDS or self._ratio <= MAX_RATIO

    @property
    def unclear(self) -> bool:
        return not self._tries or (self._tries < _TRIES and not self._is_linear)

    def judge(self) -> None:
        assert self._is_linear, (
            f"four times the input costs {self._ratio:.1f} times as much ({self._small:.4f} s, {self._large:.4f} s)"
        )


def _cost(given: Input, work: Callable[[Input], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time()
        work(given)
        return time.thread_time() - began
    finally:
        gc.enable()


async def _cost_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> float:
    given = await make(size)
    began = time.thread_time()
    await work(given)
    return time.thread_time() - began
