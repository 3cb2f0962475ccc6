"""Many at once, or one alone."""

from __future__ import annotations

import asyncio

import pytest

from paddock.store.postgres import SharedLock
from tests.support.waiting import until


async def test_many_have_a_turn_at_once_and_one_alone_waits_for_them_and_comes_before_the_next() -> None:
    turns = SharedLock()
    await turns.shared.acquire()
    await turns.shared.acquire()
    alone = asyncio.ensure_future(turns.alone.acquire())
    await until(lambda: turns._gate.locked())
    later = asyncio.ensure_future(turns.shared.acquire())
    turns.shared.release()
    await asyncio.sleep(0)
    assert not alone.done() and not later.done()
    turns.shared.release()
    await alone
    assert not later.done()
    turns.alone.release()
    await later
    turns.shared.release()


async def test_who_gives_up_being_alone_leaves_the_others_their_turns() -> None:
    turns = SharedLock()
    await turns.shared.acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await turns.alone.acquire()
    async with asyncio.timeout(10):
        await turns.shared.acquire()
    turns.shared.release()
    turns.shared.release()
    async with asyncio.timeout(10):
        await turns.alone.acquire()
    turns.alone.release()
