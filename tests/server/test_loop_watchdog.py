"""The watchdog of the event loop: what blocks it is named, a machine that is busy is not."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator

import pytest

from paddock.server.loop_watchdog import LoopStall, LoopWatchdog
from tests.support.waiting import PATIENCE_S

THRESHOLD = 0.3


@pytest.fixture
async def watchdog() -> AsyncIterator[LoopWatchdog]:
    made = LoopWatchdog(THRESHOLD)
    made.start()
    await asyncio.sleep(THRESHOLD)
    yield made
    made.stop()


def compute(watchdog: LoopWatchdog) -> None:
    """Until the watchdog's thread had its turn, however busy the machine is."""
    began = time.thread_time()
    while time.thread_time() - began < 2 * THRESHOLD or watchdog._seen is None:
        sum(range(1000))


def block(watchdog: LoopWatchdog) -> None:
    time.sleep(2 * THRESHOLD)
    while watchdog._seen is None:
        time.sleep(0.01)


def compute_in_c(seconds: float) -> None:
    """One call, in which no other thread has its turn."""
    length = 20
    while True:
        began = time.thread_time()
        re.fullmatch("(a|a)*b", "a" * length)
        if time.thread_time() - began > seconds:
            return
        length += 1


def find_stall(watchdog: LoopWatchdog, function: str) -> LoopStall | None:
    named = (stall for stall in watchdog.stalls if any(f"in {function}\n" in line for line in stall.stack))
    return next(named, None)


async def wait_for_stall(watchdog: LoopWatchdog, function: str) -> LoopStall:
    async with asyncio.timeout(PATIENCE_S):
        while (stall := find_stall(watchdog, function)) is None:
            await asyncio.sleep(0.01)
    return stall


async def test_computing_is_counted_with_its_stack(watchdog: LoopWatchdog) -> None:
    compute(watchdog)
    assert (await wait_for_stall(watchdog, "compute")).cpu_seconds > THRESHOLD


async def test_what_holds_the_interpreter_is_named_too(watchdog: LoopWatchdog) -> None:
    """Here nothing can wait for the watchdog's thread: if it had no core during all of a call, it names the next."""
    async with asyncio.timeout(PATIENCE_S):
        while find_stall(watchdog, "compute_in_c") is None:
            compute_in_c(2 * THRESHOLD)
            await asyncio.sleep(THRESHOLD)


async def test_a_blocking_call_is_counted(watchdog: LoopWatchdog) -> None:
    block(watchdog)
    assert (await wait_for_stall(watchdog, "block")).own_seconds > THRESHOLD


async def test_waiting_for_a_core_is_not(watchdog: LoopWatchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    read = watchdog._read_clocks
    began = time.monotonic()

    def starved() -> object:
        clocks = read()
        return type(clocks)(clocks.cpu, clocks.starved + time.monotonic() - began)

    monkeypatch.setattr(watchdog, "_read_clocks", starved)
    await asyncio.sleep(2 * THRESHOLD)
    before = watchdog.count
    time.sleep(4 * THRESHOLD)
    await asyncio.sleep(2 * THRESHOLD)
    assert watchdog.count == before


async def test_it_can_be_turned_off() -> None:
    watchdog = LoopWatchdog(0)
    watchdog.start()
    time.sleep(0.2)
    await asyncio.sleep(0.1)
    watchdog.stop()
    assert watchdog.count == 0


async def test_a_loop_that_does_nothing_costs_little_to_watch() -> None:
    watchdog = LoopWatchdog(0.1)
    watchdog.start()
    began = time.thread_time()
    await asyncio.sleep(2)
    used = time.thread_time() - began
    watchdog.stop()
    assert used < 0.2, "a tenth of a processor; it is some thousandth on a machine that is not busy"


def test_it_ends_with_its_loop_also_where_nobody_stops_it() -> None:
    """Or a program that opens and abandons many would be busy with nothing else in the end."""

    async def abandon() -> threading.Thread:
        watchdog = LoopWatchdog(0.02)
        watchdog.start()
        assert watchdog._sampler is not None
        return watchdog._sampler

    sampler = asyncio.run(abandon())
    sampler.join(30)
    assert not sampler.is_alive()
