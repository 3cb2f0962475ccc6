"""The journal: activity, usage and events of running sandboxes, noted at once and written to the database in batches.

A use is appended to the journal file, which survives a crash of this process, and acknowledged; a single writer
collects entries for a moment and writes them in one transaction. Readers of that data call ``settled`` first. While the
database is unavailable, entries wait in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.clock import Clock, Pace
from paddock.errors import StoreUnavailable
from paddock.lifecycle.bus import Bus
from paddock.lifecycle.deadlines import due
from paddock.lifecycle.journal_file import JournalFile, OrphanedNotes
from paddock.models import TimeoutFrom
from paddock.store import deadlines, events, idempotency, sandboxes, servers, usage
from paddock.store.database import Store
from paddock.store.records import SandboxRow

log = structlog.get_logger(__name__)

_RETRY_S = 1.0
_GATHER_S = 0.25
"""How long the writer collects entries, unless a caller waits for one of them."""
_MAX_WAITING_SANDBOXES = 10_000
_WRITE_TIMEOUT_S = 30.0
"""How long a caller waits for the writer. The writer reports within seconds even if the database does not answer; if
the writer itself hangs, requests, and with them the shutdown, must not wait forever."""


@dataclass(slots=True)
class _Entry:
    sandbox: SandboxRow
    at: float
    """Time of the last use, which may be earlier than the time of writing."""
    commands: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    happened: list[_Happened] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Happened:
    """An event, and the number of commands it stands for. ``once``: the process id of a command whose request may be
    repeated, also after a crash; only its first record counts."""

    event: tuple[str, Mapping[str, Any]]
    commands: int = 0
    once: str | None = None


class _Batch:
    """Entries that are written in one transaction. ``done`` is set once they are written, or put back to wait."""

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.done = asyncio.Event()


class Journal:
    def __init__(self, clock: Clock, store: Store, bus: Bus, journal_file: JournalFile, server_id: str) -> None:
        self._clock = clock
        self._store = store
        self._bus = bus
        self._journal_file = journal_file
        self._server_id = server_id
        self._next = _Batch()
        self._writing = _Batch()
        self._one_at_a_time = asyncio.Lock()
        self._pending = asyncio.Event()
        self._flush_now = asyncio.Event()
        self._touched: dict[str, float] = {}
        self._written_at: dict[str, float] = {}
        self._noted = 0
        self._running = False
        self._away = False
        """The last transaction failed: callers need not wait for the next attempt."""

    async def touch(self, sandbox: SandboxRow, *, now: bool = False) -> None:
        """Postpone the sandbox's idle deadline. ``now``: return only when that is written.

        Touches in quick succession are merged; the deadline is then early by at most one second, or a twentieth of the
        timeout.
        """
        last = self._touched.get(sandbox.sandbox_id, 0.0)
        moment = self._clock.now()
        if 0 <= moment - last < min(1.0, sandbox.timeout / 20) and not now:
            return
        self._touched[sandbox.sandbox_id] = moment
        self._entry(sandbox)
        if now:
            await self._written(self._next)

    async def record(
        self,
        sandbox: SandboxRow,
        *,
        commands: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        event: tuple[str, Mapping[str, Any]] | None = None,
        once: str | None = None,
    ) -> None:
        """Count use, and return when it is durable: noted in the file or written. If neither is possible, it is kept in
        memory.

        ``once``: a process id. Its commands and its event count once, however often and by whichever server they are
        recorded.
        """
        now = self._clock.now()
        if event is not None:
            event = (event[0], events.data_of(event[1]))  # truncated now, as it goes to the file before the database
        self._touched[sandbox.sandbox_id] = now
        entry = self._entry(sandbox)
        entry.bytes_in += bytes_in
        entry.bytes_out += bytes_out
        if event is None:
            entry.commands += commands
        else:
            entry.happened.append(_Happened(event, commands, once))
        note = {
            "sandbox_id": sandbox.sandbox_id,
            "at": now,
            "commands": commands,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "event": event,
            "once": once,
        }
        if not self._journal_file.note(note):
            await self._written(self._next)
        elif event is not None and self._bus.listened_to(sandbox.sandbox_id):
            self._flush_now.set()

    async def settled(self, sandbox_id: str) -> None:
        """Return when everything recorded of this sandbox so far is in the database, or known to wait."""
        if sandbox_id in self._next.entries:
            await self._written(self._next)
        elif sandbox_id in self._writing.entries:
            await self._written(self._writing)

    async def all_settled(self) -> None:
        """The same for every sandbox."""
        if self._next.entries:  # batches are written in order: once this one is done, so is the one before it
            await self._written(self._next)
        elif self._writing.entries:
            await self._written(self._writing)

    def last_written(self, sandbox_id: str) -> float:
        """Time of the last use that is in the database; 0 if there is none."""
        return self._written_at.get(sandbox_id, 0.0)

    def shift(self, seconds: float) -> None:
        """The clock was set by ``seconds``: shift the times of uses, so that their age stays the same."""
        for batch in (self._writing, self._next):
            for entry in batch.entries.values():
                entry.at += seconds
        for moments in (self._touched, self._written_at):
            moments.update({sandbox_id: at + seconds for sandbox_id, at in moments.items()})

    def forget(self, sandbox_id: str) -> None:
        self._touched.pop(sandbox_id, None)
        self._written_at.pop(sandbox_id, None)

    async def recover(self) -> None:
        """Write the notes of servers that died before they had written them."""
        over: list[str] = []
        for left in self._journal_file.leftovers():
            over.append(left.server_id)
            if left.notes:
                await self._carry_over(left)
        if over:  # their files are deleted now, so the progress stored for them is no longer needed
            async with self._store.write() as connection:
                await servers.forget_notes(connection, over)

    async def run(self, pace: Pace) -> None:
        """The writer loop. What is left when it stops is written by a last ``flush``."""
        self._running = True
        try:
            while not pace.stopped:
                await self._pending.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GATHER_S):
                        await self._flush_now.wait()
                if not await self.flush():
                    await pace.rest(_RETRY_S)
        finally:
            self._running = False

    def wake(self) -> None:
        """Make the writer run again, even if nothing is new."""
        self._pending.set()
        self._flush_now.set()

    async def flush(self) -> bool:
        """Write all waiting entries in one transaction. False if the database is unavailable and they keep waiting."""
        # One flush at a time, or a later note number could be stored as written before an earlier note is.
        async with self._one_at_a_time:
            return await self._flush()

    async def _flush(self) -> bool:
        self._pending.clear()
        self._flush_now.clear()
        number = self._journal_file.number
        # Ordered by id, so that two servers cannot deadlock on each other's rows.
        batch, self._next = self._next, _Batch()
        taken = batch.entries = dict(sorted(batch.entries.items()))
        if not taken:
            batch.done.set()
            return True
        self._writing = batch
        try:
            try:
                await self._write_all(taken, number)
            except StoreUnavailable:
                raise
            except Exception:  # noqa: BLE001 - the failing entry is found and logged one by one
                await self._write_all(await self._writable(taken), number)
        except BaseException as error:
            self._away = True
            self._put_back(taken)
            if not isinstance(error, StoreUnavailable):
                raise
            return False
        else:
            self._away = False
            self._noted = number
            self._journal_file.settle(number)
        finally:
            self._writing = _Batch()
            batch.done.set()
        for sandbox_id, entry in taken.items():
            self._written_at[sandbox_id] = entry.at
            if entry.happened:
                self._bus.publish(sandbox_id)
        return True

    async def _write_all(self, taken: Mapping[str, _Entry], number: int) -> None:
        async with self._store.write() as connection:
            for entry in taken.values():
                await self._write(connection, entry)
            if number != self._noted:
                await servers.note(connection, self._server_id, number)

    async def _writable(self, taken: Mapping[str, _Entry]) -> dict[str, _Entry]:
        """The entries that the database accepts, tried one by one in transactions that are rolled back: one bad entry
        must not block the others."""
        good = {}
        for sandbox_id, entry in taken.items():
            try:
                async with self._store.write() as connection:
                    await self._write(connection, entry)
                    await connection.rollback()
                good[sandbox_id] = entry
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("the use of a sandbox could not be written down", sandbox_id=sandbox_id)
        return good

    async def _write(self, connection: AsyncConnection, entry: _Entry) -> None:
        sandbox, at = entry.sandbox, entry.at
        new = [each for each in entry.happened if await _counts(connection, each.once, at)]
        commands = entry.commands + sum(each.commands for each in new)
        told = [each.event for each in new]
        timeout = await events.append(connection, sandbox.sandbox_id, at, *told, last_activity_at=at)
        if timeout is None:
            return  # purged meanwhile
        if commands or entry.bytes_in or entry.bytes_out:
            await usage.add(
                connection, sandbox, at, commands=commands, bytes_in=entry.bytes_in, bytes_out=entry.bytes_out
            )
        if sandbox.timeout_from is TimeoutFrom.ACTIVITY:
            await deadlines.push_out(connection, sandbox.sandbox_id, *due(at, timeout))

    async def _carry_over(self, left: OrphanedNotes) -> None:
        try:
            new = await self._write_notes(left.server_id, left.notes)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - the failing note is found and logged one by one
            new = sum([await self._write_notes(left.server_id, [note], forgiving=True) for note in left.notes])
        log.info("carried over what a dead server had noted", server_id=left.server_id, notes=new)

    async def _write_notes(
        self, server_id: str, noted: Sequence[tuple[int, Mapping[str, Any]]], *, forgiving: bool = False
    ) -> int:
        """Write the notes that are not yet in the database, with the number of the last, in one transaction.

        ``forgiving``: a note that cannot be written is dropped, so that it does not keep a server from starting.
        """
        new = 0
        try:
            async with self._store.write() as connection:
                done = await servers.noted(connection, server_id)
                for number, note in noted:
                    if number > done:
                        await self._write_note(connection, note)
                        new += 1
                await servers.note(connection, server_id, max(done, noted[-1][0]))
        except StoreUnavailable:
            raise
        except Exception:
            if not forgiving:
                raise
            log.exception("a note of a dead server could not be carried over", server_id=server_id)
            return 0
        return new

    async def _write_note(self, connection: AsyncConnection, note: Mapping[str, Any]) -> None:
        """Write usage and event as noted. Deadlines are not touched: they have been maintained since."""
        sandbox = await sandboxes.get(connection, note["sandbox_id"], lock=True)
        if sandbox is None:
            return
        counts = {name: note[name] for name in ("commands", "bytes_in", "bytes_out")}
        if note["event"] is not None:
            if await _counts(connection, note.get("once"), note["at"]):
                await events.append(connection, sandbox.sandbox_id, note["at"], tuple(note["event"]))
            else:
                counts["commands"] = 0
        await usage.add(connection, sandbox, note["at"], **counts)

    def _entry(self, sandbox: SandboxRow) -> _Entry:
        entries = self._next.entries
        entry = entries.get(sandbox.sandbox_id)
        if entry is None:
            if len(entries) >= _MAX_WAITING_SANDBOXES:
                raise StoreUnavailable("The database has been away for too long: too much waits to be written.")
            entry = entries[sandbox.sandbox_id] = _Entry(sandbox, self._clock.now())
        elif sandbox.version >= entry.sandbox.version:
            entry.sandbox = sandbox
        entry.at = self._clock.now()
        self._pending.set()
        return entry

    async def _written(self, batch: _Batch) -> None:
        """Return when the batch is in the database, or when it is known that it has to wait."""
        if self._away:
            return
        if not self._running:
            await self.flush()
            return
        self._pending.set()
        self._flush_now.set()
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                await batch.done.wait()
        except TimeoutError:
            log.warning("journal was not written in time", seconds=_WRITE_TIMEOUT_S, sandboxes=len(batch.entries))

    def _put_back(self, taken: dict[str, _Entry]) -> None:
        """Nothing was written: merge the entries into the next batch. Callers do not wait for it."""
        log.warning("journal waits for the database", sandboxes=len(taken))
        for sandbox_id, entry in taken.items():
            newer = self._next.entries.get(sandbox_id)
            if newer is not None:
                entry.commands += newer.commands
                entry.bytes_in += newer.bytes_in
                entry.bytes_out += newer.bytes_out
                entry.happened += newer.happened
                entry.sandbox, entry.at = newer.sandbox, newer.at
            self._next.entries[sandbox_id] = entry
        self._pending.set()


async def _counts(connection: AsyncConnection, once: str | None, at: float) -> bool:
    return once is None or await idempotency.first_count(connection, once, at)
