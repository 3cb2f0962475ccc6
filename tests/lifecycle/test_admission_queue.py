"""Creates that come together begin in turn, and none can keep the others."""

from __future__ import annotations

import asyncio

from paddock.lifecycle.locks import AdmissionQueue
from tests.support.waiting import PATIENCE_S

FOREVER = 3600.0


async def test_they_begin_in_the_order_of_arrival_and_so_many_at_once() -> None:
    admission, begun, go = AdmissionQueue(2, FOREVER), [], asyncio.Event()

    async def arrive(number: int) -> None:
        async with admission.turn():
            begun.append(number)
            if number < 2:
                await go.wait()

    tasks = [asyncio.create_task(arrive(number)) for number in range(6)]
    while len(begun) < 2:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [0, 1]
    go.set()
    await asyncio.gather(*tasks)
    assert begun == [0, 1, 2, 3, 4, 5]


async def test_one_that_takes_its_time_keeps_nobody() -> None:
    admission, go = AdmissionQueue(1, 0.001), asyncio.Event()

    async def slow() -> None:
        async with admission.turn():
            await go.wait()

    tasks = [asyncio.create_task(slow()) for _ in range(5)]
    async with asyncio.timeout(PATIENCE_S), admission.turn():
        pass
    go.set()
    await asyncio.gather(*tasks)


async def test_whoever_leaves_the_queue_or_fails_takes_no_turn_along() -> None:
    admission, go = AdmissionQueue(1, FOREVER), asyncio.Event()

    async def hold() -> None:
        async with admission.turn():
            await go.wait()
            raise ValueError("it failed")

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    leaving = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0)
    leaving[0].cancel()
    go.set()
    await asyncio.sleep(0)
    leaving[1].cancel()
    await asyncio.gather(holding, *leaving, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_S), admission.turn():
        pass
