"""Usage up to now: what is in the database, and the time that running sandboxes have run since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paddock.accounts.accounts import Principal
from paddock.clock import Clock
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.journal import Journal
from paddock.store import usage
from paddock.store.database import Store
from paddock.store.records import UsageRow


class UsageReport:
    def __init__(self, clock: Clock, store: Store, controller: Controller, journal: Journal) -> None:
        self._clock = clock
        self._store = store
        self._controller = controller
        self._journal = journal

    async def of_sandbox(self, who: Principal, sandbox_id: str) -> tuple[UsageRow, list[UsageRow]]:
        """The total, and a row per day."""
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        await self._journal.settled(sandbox_id)
        async with self._store.read() as connection:
            written = await usage.per_day(connection, sandbox_id)
        running = [(sandbox.user_id, sandbox.running_since)] if sandbox.running_since is not None else []
        rows = self._with_running(written, running, sandbox_id)
        return _total(rows, sandbox.user_id, sandbox_id), rows

    async def of_users(
        self, who: Principal, *, user_id: str | None, since: str | None, until: str | None
    ) -> tuple[UsageRow, list[UsageRow]]:
        """The total, and a row per user and day."""
        await self._journal.all_settled()
        owner_id = None if who.is_admin else who.user_id
        async with self._store.read() as connection:
            written = await usage.per_user(connection, owner_id=owner_id, user_id=user_id, since=since, until=until)
            running = await usage.running(connection, owner_id=owner_id, user_id=user_id)
        rows = self._with_running(written, running, None, since or "", until or "9999-12-31")
        return _total(rows, user_id or ("*" if who.is_admin else who.user_id), None), rows

    def _with_running(
        self,
        written: Iterable[UsageRow],
        running: Iterable[tuple[str, float]],
        sandbox_id: str | None,
        first: str = "",
        last: str = "9999-12-31",
    ) -> list[UsageRow]:
        """Add the running time that is not in the database yet, on the days on which it passed."""
        rows = {(row.day, row.user_id): row for row in written}
        now = self._clock.now()
        for user_id, since in running:
            for day, seconds in usage.days(since, now):
                if first <= day <= last:
                    row = rows.get((day, user_id)) or UsageRow(user_id, sandbox_id, day, 0.0, 0, 0, 0)
                    rows[day, user_id] = replace(row, seconds=row.seconds + seconds)
        return [rows[key] for key in sorted(rows)]


def _total(rows: Iterable[UsageRow], user_id: str, sandbox_id: str | None) -> UsageRow:
    rows = list(rows)
    return UsageRow(
        user_id=user_id,
        sandbox_id=sandbox_id,
        day=None,
        seconds=sum(row.seconds for row in rows),
        commands=sum(row.commands for row in rows),
        bytes_in=sum(row.bytes_in for row in rows),
        bytes_out=sum(row.bytes_out for row in rows),
    )
