"""Whether a cost grows faster than its input, by the CPU time of the thread that does the work, which no busy neighbour
changes much."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Input = TypeVar("Input")

TIMES_LARGER = 16
MAX_RATIO = 64.0
"""Of the costs. Linear work has 16, work that grows with the square 256. Between them lies what the processor's caches
and its other programs do to a cost: input that no longer fits into a cache was seen to cost three times as much."""
_FREE_SECONDS = 0.02
"""What costs less than this at the larger size is not worth a question."""
_TRIES = 12
"""Somebody else's work only ever adds to a cost: the least of many is the nearest to the truth. They end with the first
that shows linear growth, which work that grows with the square never does."""


def assert_linear(make: Callable[[int], Input], work: Callable[[Input], object], size: int) -> None:
    """``work`` on what ``make`` makes of a quarter of a size, and of four times that size."""
    small, large = make(_small(size)), make(_large(size))
    growth = _Growth()
    while growth.unclear:
        growth.add(_cost(small, work), _cost(large, work))
    growth.judge()


async def assert_linear_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> None:
    growth = _Growth()
    while growth.unclear:
        growth.add(await _cost_async(make, work, _small(size)), await _cost_async(make, work, _large(size)))
    growth.judge()


def _small(size: int) -> int:
    return size // math.isqrt(TIMES_LARGER)


def _large(size: int) -> int:
    return _small(size) * TIMES_LARGER


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
            f"{TIMES_LARGER} times the input costs {self._ratio:.0f} times as much "
            f"({self._small:.4f} s, {self._large:.4f} s)"
        )


def _cost(given: Input, work: Callable[[Input], object]) -> float:
    with _without_collections():
        began = time.thread_time()
        work(given)
        return time.thread_time() - began


async def _cost_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> float:
    given = await make(size)
    with _without_collections():
        began = time.thread_time()
        await work(given)
        return time.thread_time() - began


@contextmanager
def _without_collections() -> Iterator[None]:
    """The cyclic collector's work depends on what else the process holds."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
