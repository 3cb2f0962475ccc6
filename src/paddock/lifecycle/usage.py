"""What was used, up to this moment: what is written down, and what the running ones have run since."""

from __future__ import annotations

from collections.abc import Iterable

from paddock.clock import Clock
from paddock.lifecycle.accounts import Principal
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.journal import Journal
from paddock.store import usage
from paddock.store.database import Store
from paddock.store.records import Usage


class UsageBook:
    def __init__(self, clock: Clock, store: Store, controller: Controller, journal: Journal) -> None:
        self._clock = clock
        self._store = store
        self._controller = controller
        self._journal = journal

    async def of_sandbox(self, who: Principal, sandbox_id: str) -> tuple[Usage, list[Usage]]:
        """The total, and a row for each day."""
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        await self._journal.settled(sandbox_id)
        async with self._store.read() as connection:
            rows = await usage.per_day(connection, sandbox_id)
        running = max(0.0, self._clock.now() - sandbox.running_since) if sandbox.running_since else 0.0
        return _total(rows, sandbox.user_id, sandbox_id, running), rows

    async def of_users(
        self, who: Principal, *, user_id: str | None, since: str | None, until: str | None
    ) -> tuple[Usage, list[Usage]]:
        """The total, and a row for each user and day. Running time is at most a few minutes behind."""
        await self._journal.all_settled()
        async with self._store.read() as connection:
            rows = await usage.per_user(
                connection,
                owner_id=None if who.is_admin else who.user_id,
                user_id=user_id,
                since=since,
                until=until,
            )
        return _total(rows, user_id or ("*" if who.is_admin else who.user_id), None, 0.0), rows


def _total(rows: Iterable[Usage], user_id: str, sandbox_id: str | None, running: float) -> Usage:
    rows = list(rows)
    return Usage(
        user_id=user_id,
        sandbox_id=sandbox_id,
        day=None,
        seconds=sum(row.seconds for row in rows) + running,
        commands=sum(row.commands for row in rows),
        bytes_in=sum(row.bytes_in for row in rows),
        bytes_out=sum(row.bytes_out for row in rows),
    )
