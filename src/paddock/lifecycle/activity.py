"""Running sandboxes as this process knows them: which are in use, and their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from paddock.clock import Pace
from paddock.lifecycle.journal import Journal
from paddock.models import State
from paddock.store import sandboxes
from paddock.store.database import Store
from paddock.store.records import SandboxRow

_INTERVAL = 5.0
_MAX_ROWS = 10_000


class Activity:
    """Tracks which sandboxes are in use. Long uses (a stream, a terminal, a slow command) keep postponing the idle
    deadline."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._inside: dict[str, tuple[SandboxRow, int]] = {}

    def inside(self, sandbox_id: str) -> SandboxRow | None:
        """The sandbox's row if it is in use through this server, else None."""
        entry = self._inside.get(sandbox_id)
        return entry[0] if entry else None

    @contextmanager
    def enter(self, sandbox: SandboxRow) -> Iterator[None]:
        _, count = self._inside.get(sandbox.sandbox_id, (sandbox, 0))
        self._inside[sandbox.sandbox_id] = (sandbox, count + 1)
        try:
            yield
        finally:
            current, count = self._inside[sandbox.sandbox_id]
            if count == 1:
                del self._inside[sandbox.sandbox_id]
            else:
                self._inside[sandbox.sandbox_id] = (current, count - 1)

    async def refresh(self) -> float:
        """Postpone the idle deadline of every sandbox in use; returns the seconds until the next refresh is needed."""
        users = [sandbox for sandbox, _ in self._inside.values()]
        for sandbox in users:
            await self._journal.touch(sandbox)
        return min((sandbox.timeout / 4 for sandbox in users), default=_INTERVAL)

    async def run(self, pace: Pace) -> None:
        while await pace.rest(min(_INTERVAL, await self.refresh())):
            pass


class RowCache:
    """Rows of running sandboxes in memory, because every operation inside a sandbox begins with its row.

    On SQLite this process is the only writer (enforced by a lock), and the store reports which rows each transaction
    changed, so a cached row is valid until then. On PostgreSQL, with several servers, the row is read every time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, SandboxRow] = {}
        self._ids: dict[str, str] = {}
        self._changes = 0
        store.tell_changes(self._forget)

    async def get(self, sandbox_id: str) -> SandboxRow | None:
        known = self._known.get(sandbox_id)
        if known is not None and self._store.in_place:
            return known
        changes = self._changes
        async with self._store.read() as connection:
            row = await sandboxes.get(connection, sandbox_id)
        # A change during the read may concern this row, and the read may have returned the old version.
        if row is not None and row.state is State.RUNNING and self._store.sqlite and changes == self._changes:
            if len(self._known) >= _MAX_ROWS:
                self._known.clear()
            self._known[sandbox_id] = row
        return row

    async def by_key(self, key: str) -> SandboxRow | None:
        """The same by the sandbox's DNS-safe key, which never changes."""
        sandbox_id = self._ids.get(key)
        if sandbox_id is not None:
            row = await self.get(sandbox_id)
            return row if row is not None and row.key == key else None
        async with self._store.read() as connection:
            row = await sandboxes.get_by_key(connection, key)
        if row is not None:
            if len(self._ids) >= _MAX_ROWS:
                self._ids.clear()
            self._ids[key] = row.sandbox_id
        return row

    def _forget(self, sandbox_ids: Collection[str]) -> None:
        self._changes += 1
        for sandbox_id in sandbox_ids:
            self._known.pop(sandbox_id, None)
