"""Tokens are the same on every server and after every restart, and each is good for one thing only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.accounts.tokens import TICKET_SECONDS, Tokens
from paddock.clock import ManualClock
from paddock.errors import Unauthorized, Unavailable
from paddock.store.database import Store

KEY, OTHER = "i0123456789abcdefghij", "i0123456789abcdefghik"


@pytest.fixture
async def store(database_url: str) -> Store:
    store = Store(database_url)
    await store.open()
    return store


async def opened(clock: ManualClock, store: Store) -> Tokens:
    tokens = Tokens(clock, store)
    await tokens.open()
    return tokens


async def test_two_servers_that_start_at_once_have_one_secret(clock: ManualClock, store: Store) -> None:
    first, second = await asyncio.gather(opened(clock, store), opened(clock, store))
    assert first.access(KEY) == second.access(KEY)
    assert first.sign_link(KEY, 80, 5) == second.sign_link(KEY, 80, 5)


async def test_every_installation_has_its_own(clock: ManualClock, tmp_path: Path) -> None:
    made = []
    for name in "ab":
        store = Store(f"sqlite:///{tmp_path / name}.db")
        await store.open()
        made.append((await opened(clock, store)).access(KEY))
        await store.close()
    assert made[0] != made[1]


def test_without_its_secret_it_makes_nothing(clock: ManualClock) -> None:
    with pytest.raises(Unavailable):
        Tokens(clock, Store("sqlite:///nowhere.db")).access(KEY)


async def test_a_token_is_for_one_sandbox_and_one_purpose(clock: ManualClock, store: Store) -> None:
    tokens = await opened(clock, store)
    assert tokens.check_access(KEY, tokens.access(KEY))
    assert tokens.check_traffic(KEY, tokens.traffic(KEY))
    assert not tokens.check_access(OTHER, tokens.access(KEY))
    assert not tokens.check_traffic(KEY, tokens.access(KEY))
    assert not tokens.check_access(KEY, "")
    assert not tokens.check_access(KEY, "ü\udcff")


async def test_a_link_is_for_one_port_until_it_expires(clock: ManualClock, store: Store) -> None:
    tokens = await opened(clock, store)
    link = tokens.sign_link(KEY, 3000, clock.now() + 60)
    assert tokens.check_link(KEY, 3000, link) == int(clock.now() + 60)
    assert tokens.check_link(KEY, 3001, link) is None
    assert tokens.check_link(OTHER, 3000, link) is None
    assert not tokens.check_cookie(KEY, 3000, link)
    await clock.advance(61)
    assert tokens.check_link(KEY, 3000, link) is None


async def test_a_ticket_is_redeemed_once_however_many_try(clock: ManualClock, store: Store) -> None:
    tokens = await opened(clock, store)
    ticket, expires_at = await tokens.ticket("alice_1f2e3d4c", "alice", 3000)
    assert expires_at == clock.now() + TICKET_SECONDS
    tries = await asyncio.gather(*(tokens.redeem(ticket) for _ in range(8)), return_exceptions=True)
    good = [found for found in tries if not isinstance(found, BaseException)]
    assert [(found.sandbox_id, found.user_id, found.port) for found in good] == [("alice_1f2e3d4c", "alice", 3000)]
    assert all(isinstance(found, Unauthorized) for found in tries if found not in good)


async def test_an_old_ticket_is_worth_nothing(clock: ManualClock, store: Store) -> None:
    tokens = await opened(clock, store)
    ticket, _ = await tokens.ticket("alice_1f2e3d4c", "alice")
    await clock.advance(TICKET_SECONDS + 1)
    with pytest.raises(Unauthorized):
        await tokens.redeem(ticket)
