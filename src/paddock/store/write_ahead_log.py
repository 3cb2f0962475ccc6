"""Maintains SQLite's write-ahead log: checkpoints it in the background, keeps it small, and empties it when required.

SQLite's own checkpoints are off, because they would make some commit wait for the disk. Checkpointed data stays in the
file until it is overwritten or the file is emptied; so after secrets were removed the log is emptied soon, because it
still holds them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import structlog

from paddock.errors import StoreUnavailable
from paddock.store import sqlite

log = structlog.get_logger(__name__)

_CHECKPOINT_COMMITS = 500
LIMIT_BYTES = 16 << 20
"""Above this size the log is emptied after a checkpoint, for which writers wait a moment. What is written during one
checkpoint comes on top."""
_CATCH_UP_COMMITS = 16
_CATCH_UP_S = 2.0
"""How often to check whether the log is four times too large, and how long a writer then waits."""
_IDLE_CHECK_INTERVAL_S = 5.0
"""How often to check whether the database is idle. If it is, the log is checkpointed and emptied."""
_IDLE_COMMITS, _IDLE_BYTES = 16, 1 << 20
"""So few commits that changed a row are a server's own heartbeats; they shall not keep a log that is larger than this.
Commits that changed none do not count: the scheduler looks for due deadlines in one several times a second."""
_MAX_PATIENCE = 12
_WIPE_DEADLINE_S = 30.0
"""A log that holds removed secrets is emptied after this time, however busy the database is."""


class WriteAheadLog:
    def __init__(self, file: Path, keep_away: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """``keep_away``: a context in which no other task of this process writes."""
        self._file = file
        self._keep_away = keep_away
        self._commits = 0
        self._changes = 0
        """Commits that changed a row."""
        self._checkpoint: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wiped_at: float | None = None
        """Since when the log may hold data removed from the database."""
        self._patience = 1
        """Factor by which the check interval grows while continuous readers prevent emptying."""

    @property
    def size(self) -> int:
        """In bytes."""
        return sqlite.wal_bytes(self._file)

    def open(self) -> None:
        """An earlier process may have ended before emptying the log."""
        self.wipe()

    async def close(self) -> None:
        self._wiped_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._checkpoint is not None:
            await self._checkpoint

    def committed(self, *, changed_rows: bool) -> None:
        self._commits += 1
        self._changes += changed_rows
        self._schedule_check()
        if self._commits % _CHECKPOINT_COMMITS == 0:
            self._start_checkpoint(LIMIT_BYTES)

    async def let_catch_up(self) -> None:
        """If the disk is slower than the writers, they wait a moment for the checkpoint instead of growing the log."""
        running = self._checkpoint
        if running is None or running.done() or self._commits % _CATCH_UP_COMMITS:
            return
        if self.size > 4 * LIMIT_BYTES:
            await asyncio.wait({running}, timeout=_CATCH_UP_S)

    def wipe(self) -> None:
        """Secrets were removed from the database: empty the log soon."""
        if self._wiped_at is None:
            self._wiped_at = asyncio.get_running_loop().time()
        self._schedule_check()

    def _schedule_check(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            interval = _IDLE_CHECK_INTERVAL_S * self._patience
            self._timer = loop.call_later(interval, self._check, self._commits, self._changes)

    def _check(self, commits: int, changes: int) -> None:
        """Checkpoint if little was written since, so that hardly any writer waits; else check again later."""
        self._timer = None
        written = self._changes - changes
        if self._commits == commits or self._must_empty(written):
            self._start_checkpoint(0)
        elif written <= _IDLE_COMMITS:
            self._start_checkpoint(_IDLE_BYTES)
        if written > _IDLE_COMMITS or self._wiped_at is not None:
            self._schedule_check()

    def _must_empty(self, written: int) -> bool:
        if self._wiped_at is None:
            return False
        return written <= _IDLE_COMMITS or asyncio.get_running_loop().time() - self._wiped_at > _WIPE_DEADLINE_S

    def _start_checkpoint(self, most_bytes: int) -> None:
        if self._checkpoint is None or self._checkpoint.done():
            self._checkpoint = asyncio.create_task(self._do_checkpoint(most_bytes))

    async def _do_checkpoint(self, most_bytes: int) -> None:
        """Checkpoint while others write; if the log is still too large, block writers for the rest."""
        try:
            await sqlite.checkpoint(self._file)
            if self.size > most_bytes:
                async with self._keep_away():
                    await sqlite.truncate(self._file)
                    self._check_emptied()
            elif not self.size:
                self._check_emptied()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            log.warning("checkpoint failed; the next one does its work", problem=str(error)[:300])

    def _check_emptied(self) -> None:
        """Called with writers blocked: a later writer that removes secrets calls ``wipe`` again."""
        if self.size:
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
        else:
            self._wiped_at, self._patience = None, 1
