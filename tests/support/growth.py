"""Whether a cost grows faster than its input, by the CPU time of the thread that does the work, which no busy neighbour
changes much."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Input = TypeVar("Input")

TIMES_LARGER = 4
MAX_RATIO = 9.0
"""Of the costs. Linear work has 4; work that grows with the square, 16."""
_FREE_SECONDS = 0.02
"""What costs less than this at the larger size is not worth a question."""
_TRIES = 3


def assert_linear(make: Callable[[int], Input], work: Callable[[Input], object], size: int) -> None:
    """``work`` on what ``make`` makes of a size, and of four times that size."""
    small, large = (_cost(make(each), work) for each in (size, TIMES_LARGER * size))
    _judge(small, large)


async def assert_linear_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> None:
    small, large = [await _cost_async(make, work, each) for each in (size, TIMES_LARGER * size)]
    _judge(small, large)


def _judge(small: float, large: float) -> None:
    if large > _FREE_SECONDS:
        ratio = large / max(small, 1e-4)
        assert ratio <= MAX_RATIO, (
            f"four times the input costs {ratio:.1f} times as much ({small:.4f} s, {large:.4f} s)"
        )


def _cost(given: Input, work: Callable[[Input], object]) -> float:
    """The least of several tries: what is more was somebody else's."""
    found = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(_TRIES):
            began = time.thread_time()
            work(given)
            found.append(time.thread_time() - began)
            if found[-1] > 1:
                break
    finally:
        gc.enable()
    return min(found)


async def _cost_async(
    make: Callable[[int], Awaitable[Input]], work: Callable[[Input], Awaitable[object]], size: int
) -> float:
    found = []
    for _ in range(_TRIES):
        given = await make(size)
        began = time.thread_time()
        await work(given)
        found.append(time.thread_time() - began)
        if found[-1] > 1:
            break
    return min(found)
