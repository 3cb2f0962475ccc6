"""Deadlines: one of a kind per sandbox, claimed by one, consumed once."""

from __future__ import annotations

import asyncio

from paddock.models import TimeoutAction
from paddock.store import deadlines, sandboxes
from paddock.store.database import Store
from paddock.store.records import Deadline, DeadlineKind
from tests.support.rows import EPOCH, a_sandbox

IDLE, PAUSE = DeadlineKind.IDLE, TimeoutAction.PAUSE


async def put(store: Store, sandbox_id: str, due_at: float, warn_at: float | None = None) -> None:
    async with store.write() as connection:
        await deadlines.put(connection, sandbox_id, IDLE, PAUSE, due_at, warn_at)


async def claim(store: Store, server: str, now: float, until: float | None = None) -> list[Deadline]:
    async with store.write() as connection:
        return await deadlines.claim(connection, server, now, until or now + 30, 100)


async def consume(store: Store, deadline: Deadline, now: float) -> bool:
    async with store.write() as connection:
        return await deadlines.consume(connection, deadline, now)


async def test_only_what_is_due_is_claimed(store: Store) -> None:
    await put(store, "a", EPOCH + 10)
    await put(store, "b", EPOCH + 20)
    assert [deadline.sandbox_id for deadline in await claim(store, "me", EPOCH + 10)] == ["a"]


async def test_two_servers_never_hold_the_same_claim(store: Store) -> None:
    for number in range(50):
        await put(store, f"s{number}", EPOCH)
    claims = await asyncio.gather(*(claim(store, f"server{number}", EPOCH + 1) for number in range(4)))
    names = [deadline.sandbox_id for taken in claims for deadline in taken]
    assert sorted(names) == sorted({f"s{number}" for number in range(50)})


async def test_a_claim_of_a_dead_server_runs_out(store: Store) -> None:
    await put(store, "a", EPOCH)
    assert await claim(store, "dead", EPOCH, until=EPOCH + 30)
    assert not await claim(store, "alive", EPOCH + 29)
    assert await claim(store, "alive", EPOCH + 30)


async def test_a_deadline_is_consumed_once(store: Store) -> None:
    await put(store, "a", EPOCH)
    (deadline,) = await claim(store, "me", EPOCH)
    outcomes = await asyncio.gather(*(consume(store, deadline, EPOCH) for _ in range(5)))
    assert sorted(outcomes) == [False, False, False, False, True]


async def test_a_deadline_that_was_renewed_after_the_claim_does_not_fire(store: Store) -> None:
    await put(store, "a", EPOCH)
    (deadline,) = await claim(store, "me", EPOCH)
    async with store.write() as connection:
        assert await deadlines.push_out(connection, "a", EPOCH + 60, None)
    assert not await consume(store, deadline, EPOCH + 100)


async def test_a_deadline_set_again_replaces_the_first(store: Store) -> None:
    await put(store, "a", EPOCH + 5)
    await put(store, "a", EPOCH + 50)
    assert not await claim(store, "me", EPOCH + 10)
    assert len(await claim(store, "me", EPOCH + 50)) == 1


async def test_the_warning_comes_first_and_once(store: Store) -> None:
    await put(store, "a", EPOCH + 60, warn_at=EPOCH + 54)
    (deadline,) = await claim(store, "me", EPOCH + 54)
    async with store.write() as connection:
        assert await deadlines.mark_warned(connection, deadline)
        assert not await deadlines.mark_warned(connection, deadline)
    assert not await claim(store, "me", EPOCH + 59)
    (again,) = await claim(store, "me", EPOCH + 60)
    assert again.warn_at is None


async def test_a_failed_action_is_tried_again_later(store: Store) -> None:
    await put(store, "a", EPOCH)
    (deadline,) = await claim(store, "me", EPOCH)
    async with store.write() as connection:
        await deadlines.put_off(connection, deadline, EPOCH + 8)
    assert not await claim(store, "me", EPOCH + 7)
    (again,) = await claim(store, "me", EPOCH + 8)
    assert again.attempts == 1
    assert await consume(store, again, EPOCH + 8)


async def test_settled_rows_without_a_deadline_are_found(store: Store) -> None:
    bare, kept = a_sandbox(), a_sandbox()
    async with store.write() as connection:
        await sandboxes.add(connection, bare)
        await sandboxes.add(connection, kept)
        await deadlines.put(connection, kept.sandbox_id, IDLE, PAUSE, EPOCH)
        assert await deadlines.missing(connection) == [bare.sandbox_id]


async def test_deadlines_of_a_clock_that_went_back_are_found(store: Store) -> None:
    row = a_sandbox(timeout=60)
    async with store.write() as connection:
        await sandboxes.add(connection, row)
        await deadlines.put(connection, row.sandbox_id, IDLE, PAUSE, EPOCH + 60)
        assert await deadlines.too_far(connection, EPOCH, 86_400) == []
        assert await deadlines.too_far(connection, EPOCH - 1000, 86_400) == [row.sandbox_id]
