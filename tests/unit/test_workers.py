"""Worker processes: they do what they are given, and are killed when it takes too long or too much."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator

import pytest

from paddock import errors, workers
from paddock.tools.tool import ToolFailed
from paddock.workers import Workers


def doubled(text: str) -> str:
    return text * 2


def fails(text: str) -> str:
    raise ToolFailed(f"{text}, and what to do next")


def backtracks(text: str) -> bool:
    """In C, with the interpreter's lock held: no thread could end it."""
    return re.fullmatch("(a|a)*b", text) is not None


def fills_memory(size: int) -> int:
    return len(bytearray(size))


def process_id() -> int:
    return os.getpid()


def environment() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
async def pool() -> AsyncIterator[Workers]:
    made = Workers(count=1, memory_bytes=512 << 20)
    yield made
    await made.close()


async def test_small_inputs_are_worked_on_here_and_large_ones_elsewhere(pool: Workers) -> None:
    assert await pool.call(10, process_id) == os.getpid()
    assert pool.running == 0
    first = await pool.call(workers.SMALL_BYTES + 1, process_id)
    assert first != os.getpid()
    assert await pool.run(process_id) == first
    assert await pool.run(doubled, "x" * 1_000_000) == "x" * 2_000_000


async def test_what_a_function_raises_is_raised(pool: Workers) -> None:
    with pytest.raises(ToolFailed, match="it went wrong, and what to do next"):
        await pool.run(fails, "it went wrong")
    assert await pool.run(doubled, "a") == "aa"


async def test_a_worker_is_killed_at_its_deadline(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await pool.run(process_id)
    monkeypatch.setattr(workers, "DEADLINE_SECONDS", 1.0)
    with pytest.raises(errors.InputTooCostly, match=r"longer than the 1 s"):
        await pool.run(backtracks, "a" * 60)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    monkeypatch.undo()
    assert await pool.run(process_id) != process


async def test_a_worker_has_a_limit_on_its_memory(pool: Workers) -> None:
    with pytest.raises(errors.InputTooCostly, match="more memory"):
        await pool.run(fills_memory, 1 << 30)
    assert await pool.run(fills_memory, 1 << 20) == 1 << 20


async def test_a_caller_that_leaves_takes_its_worker_along(pool: Workers) -> None:
    process = await pool.run(process_id)
    working = asyncio.create_task(pool.run(backtracks, "a" * 60))
    while pool.running == 0 or working.done():
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_the_loop_goes_on_while_a_worker_works(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    await pool.run(process_id)
    monkeypatch.setattr(workers, "DEADLINE_SECONDS", 2.0)
    working = asyncio.create_task(pool.run(backtracks, "a" * 60))
    turns, cpu = 0, time.thread_time()
    while not working.done():
        turns += 1
        await asyncio.sleep(0.01)
    with pytest.raises(errors.InputTooCostly):
        working.result()
    assert turns > 5
    assert time.thread_time() - cpu < 1


async def test_a_user_who_asks_for_much_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "DEADLINE_SECONDS", 60.0)
    shared = Workers(count=2, memory_bytes=512 << 20)
    try:
        greedy = [asyncio.create_task(shared.of("mallory").run(backtracks, "a" * 60)) for _ in range(8)]
        await asyncio.sleep(0)
        for _ in range(3):
            assert await shared.of("alice").run(doubled, "a") == "aa"
        assert not any(task.done() for task in greedy[1:]), "more than one of them had its turn before"
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)
        assert await shared.of("mallory").run(doubled, "b") == "bb"
    finally:
        await shared.close()


async def test_users_take_turns_where_there_is_one_worker(pool: Workers) -> None:
    done: list[str] = []

    async def work(user: str) -> None:
        await pool.of(user).run(process_id)
        done.append(user)

    await asyncio.gather(*(work(user) for user in ("mallory",) * 6 + ("alice", "bob")))
    assert set(done[1:4]) == {"mallory", "alice", "bob"}


async def test_a_worker_has_no_secrets_of_the_server(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", "secret")
    assert "E2B_API_KEY" not in await pool.run(environment)


async def test_workers_end_with_the_server(pool: Workers) -> None:
    process = await pool.run(process_id)
    await pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(errors.ShuttingDown):
        await pool.run(process_id)
