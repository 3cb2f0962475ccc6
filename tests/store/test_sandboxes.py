"""Rows of sandboxes: written under a version, listed by key, and not slowed down by the dead."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.errors import Invalid
from paddock.models import State
from paddock.store import events, listing, sandboxes, servers
from paddock.store.database import Store
from paddock.store.listing import ListingFilter
from paddock.store.records import SandboxRow
from paddock.store.tables import sandboxes as table
from tests.support.rows import EPOCH, a_sandbox


async def add(store: Store, *rows: SandboxRow) -> None:
    async with store.write() as connection:
        for row in rows:
            await sandboxes.add(connection, row)


async def test_what_is_written_is_read_back_whole(store: Store) -> None:
    row = a_sandbox(metadata={"chat": {"deep": [1, "ü"]}}, env={"A": "b"}, memory_mb=1 << 39)
    await add(store, row)
    async with store.read() as connection:
        assert await sandboxes.get(connection, row.sandbox_id) == row


async def test_a_change_under_an_old_version_is_refused(store: Store) -> None:
    row = a_sandbox()
    await add(store, row)
    async with store.write() as connection:
        assert await sandboxes.change(connection, row, state=State.PAUSING) is not None
    async with store.write() as connection:
        assert await sandboxes.change(connection, row, state=State.DELETING) is None
        assert (await sandboxes.get(connection, row.sandbox_id)).state is State.PAUSING  # type: ignore[union-attr]


async def test_nothing_of_a_transaction_stays_when_it_raises(store: Store) -> None:
    row = a_sandbox()
    with pytest.raises(ZeroDivisionError):
        async with store.write() as connection:
            await sandboxes.add(connection, row)
            raise ZeroDivisionError
    async with store.read() as connection:
        assert await sandboxes.get(connection, row.sandbox_id) is None


async def test_pages_show_every_row_once_newest_first(store: Store) -> None:
    # Several with the same moment of creation: the cursor must not skip or repeat them.
    rows = [a_sandbox(created_at=EPOCH + number // 3) for number in range(20)]
    await add(store, *rows)
    seen: list[SandboxRow] = []
    cursor: str | None = None
    while True:
        async with store.read() as connection:
            page, cursor = await listing.page(connection, ListingFilter(), cursor=cursor, limit=7)
        seen += page
        if cursor is None:
            break
    assert [row.sandbox_id for row in seen] == [
        row.sandbox_id for row in sorted(rows, key=lambda row: (row.created_at, row.sandbox_id), reverse=True)
    ]


@pytest.mark.parametrize("cursor", ["", "x", "💥", "bnVsbA", "WzEsMl0", "W10", "e30", "A" * 5000])
async def test_a_made_up_cursor_is_a_clear_error(store: Store, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        async with store.read() as connection:
            await listing.page(connection, ListingFilter(), cursor=cursor, limit=5)


async def test_deleted_rows_are_listed_only_when_asked_for(store: Store) -> None:
    gone, here = a_sandbox(state=State.DELETED), a_sandbox()
    await add(store, gone, here)

    async def listed(states: Sequence[State] | None) -> list[str]:
        async with store.read() as connection:
            wanted = ListingFilter(owner_id="owner", user_id="alice", states=states)
            page, _ = await listing.page(connection, wanted, cursor=None, limit=10)
        return [row.sandbox_id for row in page]

    assert await listed(None) == [here.sandbox_id]
    assert await listed([State.DELETED]) == [gone.sandbox_id]


async def test_totals_count_what_each_sandbox_holds_in_its_state(store: Store) -> None:
    states = [State.CREATING, State.RUNNING, State.PAUSED, State.DELETED, State.FAILED, State.RESUMING]
    size = {"cpu": 2, "memory_mb": 100, "disk_mb": 10, "pids": 5}
    mine = [a_sandbox(state=state, **size) for state in states]
    stopped = a_sandbox(state=State.PAUSED, memory_kept=False, **size)
    await add(store, *mine, stopped, a_sandbox(owner_id="other"))
    everything = sandboxes.Totals(sandboxes=5, live=3, cpu=6.0, memory_mb=400, processes=20, disk_mb=50)
    async with store.read() as connection:
        assert await sandboxes.totals(connection, "owner") == everything
        rest = await sandboxes.totals(connection, "owner", other_than=mine[1].sandbox_id)
        assert (rest.sandboxes, rest.live, rest.memory_mb, rest.disk_mb) == (4, 2, 300, 40)
    async with store.write() as connection:
        assert await sandboxes.total_memory(connection, other_than=stopped.sandbox_id) == 400 + 512


async def test_unfinished_work_of_the_living_is_left_to_them(store: Store) -> None:
    free = a_sandbox(state=State.PAUSING, lease_owner=None)
    mine = a_sandbox(state=State.CREATING, lease_owner="me")
    dead = a_sandbox(state=State.DELETING, lease_owner="dead")
    theirs = a_sandbox(state=State.RESUMING, lease_owner="alive")
    set_back = a_sandbox(state=State.PAUSING, lease_owner="before the clock was set back")
    await add(store, free, mine, dead, theirs, set_back, a_sandbox())
    async with store.write() as connection:
        await servers.beat(connection, "me", EPOCH + 100)
        await servers.beat(connection, "alive", EPOCH + 100)
        await servers.beat(connection, "dead", EPOCH)
        await servers.beat(connection, "before the clock was set back", EPOCH + 3700)
    async with store.read() as connection:
        found = await sandboxes.unfinished(connection, "me", EPOCH + 100, 50)
    assert {row.sandbox_id for row in found} == {free.sandbox_id, mine.sandbox_id, dead.sandbox_id, set_back.sandbox_id}


async def test_events_are_numbered_without_gaps_by_writers_at_once(store: Store) -> None:
    row = a_sandbox()
    await add(store, row)

    async def write(number: int) -> None:
        async with store.write() as connection:
            await events.append(connection, row.sandbox_id, EPOCH, ("a", {"n": number}), ("b", {"n": number}))

    await asyncio.gather(*(write(number) for number in range(20)))
    async with store.read() as connection:
        found = await events.after(connection, row.sandbox_id, 0, 1000)
    assert [event.seq for event in found] == list(range(1, 41))


async def _plan(connection: AsyncConnection, query: str) -> str:
    explain = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    return "\n".join(str(tuple(row)) for row in await connection.execute(text(explain + query)))


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            "SELECT * FROM sandboxes WHERE state != 'deleted' ORDER BY created_at DESC, sandbox_id DESC LIMIT 100",
            "ix_sandboxes_alive_all",
        ),
        (
            "SELECT * FROM sandboxes WHERE state != 'deleted' AND owner_id = 'owner3' "
            "ORDER BY created_at DESC, sandbox_id DESC LIMIT 100",
            "ix_sandboxes_alive_(owner|started)",
        ),
        (
            "SELECT sum(CASE WHEN state IN ('creating', 'running', 'pausing', 'resuming') THEN cpu ELSE 0 END) "
            "FROM sandboxes WHERE owner_id = 'owner3' AND sandbox_id != 'x' AND state != 'deleted'",
            "ix_sandboxes_(alive_owner|alive_started)",  # whichever: none walks the dead
        ),
        (
            "SELECT * FROM sandboxes WHERE state IN ('creating', 'pausing', 'resuming', 'deleting') "
            "ORDER BY state_changed_at LIMIT 1000",
            "ix_sandboxes_unfinished",
        ),
    ],
)
async def test_the_rows_of_the_dead_are_not_walked(store: Store, query: str, index: str) -> None:
    """The queries of create and list go by an index that leaves the deleted out, however many there are."""
    rows = [
        a_sandbox(
            owner_id=f"owner{number % 5}",
            created_at=EPOCH + number,
            state=State.DELETED if number % 100 else State.RUNNING,
        )
        for number in range(3000)
    ]
    names = [column.key for column in table.columns]
    async with store.write() as connection:
        await connection.execute(insert(table), [{name: getattr(row, name) for name in names} for row in rows])
        await connection.execute(text("ANALYZE"))
    async with store.read() as connection:
        assert re.search(index, await _plan(connection, query))
