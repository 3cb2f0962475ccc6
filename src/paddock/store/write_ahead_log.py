"""SQLite's write-ahead log: moved into the database in the background, kept small, and emptied where it has to be.

SQLite's own checkpoints are off, because they would make some commit wait for the disk. What is moved over stays in the
file until it is written over or the file is emptied; so when secrets were removed, it is emptied soon after, because
what they overwrote in the database still stands there.
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
"""Past this size the log is emptied after a checkpoint, for which writers wait a moment. What comes in during one
checkpoint is on top."""
_CATCH_UP_COMMITS = 16
_CATCH_UP_S = 2.0
"""How often it is looked at whether the log is four times too large, and how long a writer waits for it then."""
_LOOK_INTERVAL_S = 5.0
"""How often it is looked whether the database is idle. Then the log is moved into it, and emptied."""
_IDLE_COMMITS, _IDLE_BYTES = 16, 1 << 20
"""So few commits meanwhile are a server's own heartbeats; they shall not keep a log that is larger than this."""
_MAX_PATIENCE = 12
_WIPE_DEADLINE_S = 30.0
"""A log with removed secrets in it is emptied then, however much is written."""


class WriteAheadLog:
    def __init__(self, file: Path, keep_away: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """``keep_away``: no writer of this process writes within it."""
        self._file = file
        self._keep_away = keep_away
        self._commits = 0
        self._checkpoint: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wiped_at: float | None = None
        """Since when it may hold what was removed from the database."""
        self._patience = 1
        """How many times longer it is waited while somebody else reads on and on, so that it cannot be emptied."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sqlite.wal_bytes(self._file)

    def open(self) -> None:
        """Whoever had it before may not have come to emptying it."""
        self.wipe()

    async def close(self) -> None:
        self._wiped_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._checkpoint is not None:
            await self._checkpoint

    def committed(self) -> None:
        self._commits += 1
        self._look_later()
        if self._commits % _CHECKPOINT_COMMITS == 0:
            self._start_checkpoint(LIMIT_BYTES)

    async def let_catch_up(self) -> None:
        """Where the disk is slower than those who write, they wait for it a moment, rather than the log grow on."""
        running = self._checkpoint
        if running is None or running.done() or self._commits % _CATCH_UP_COMMITS:
            return
        if self.size > 4 * LIMIT_BYTES:
            await asyncio.wait({running}, timeout=_CATCH_UP_S)

    def wipe(self) -> None:
        """Secrets were removed from the database: empty it soon."""
        if self._wiped_at is None:
            self._wiped_at = asyncio.get_running_loop().time()
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LOOK_INTERVAL_S * self._patience, self._look, self._commits)

    def _look(self, commits: int) -> None:
        """Where hardly anything was written since, hardly anybody is kept waiting. Else look again later."""
        self._timer = None
        written = self._commits - commits
        if not written or self._must_empty(written):
            self._start_checkpoint(0)
        elif written <= _IDLE_COMMITS:
            self._start_checkpoint(_IDLE_BYTES)
        if written > _IDLE_COMMITS or self._wiped_at is not None:
            self._look_later()

    def _must_empty(self, written: int) -> bool:
        if self._wiped_at is None:
            return False
        return written <= _IDLE_COMMITS or asyncio.get_running_loop().time() - self._wiped_at > _WIPE_DEADLINE_S

    def _start_checkpoint(self, most_bytes: int) -> None:
        if self._checkpoint is None or self._checkpoint.done():
            self._checkpoint = asyncio.create_task(self._do_checkpoint(most_bytes))

    async def _do_checkpoint(self, most_bytes: int) -> None:
        """Move the log over while others write; where it is still too large, keep them away for what is left."""
        try:
            await sqlite.checkpoint(self._file)
            if self.size > most_bytes:
                async with self._keep_away():
                    await sqlite.truncate(self._file)
                    self._look_whether_empty()
            elif not self.size:
                self._look_whether_empty()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            log.warning("checkpoint failed; the next one does its work", problem=str(error)[:300])

    def _look_whether_empty(self) -> None:
        """A writer who comes to write after this says that it wiped after this, too."""
        if self.size:
            self._patience = min(2 * self._patience, _MAX_PATIENCE)
        else:
            self._wiped_at, self._patience = None, 1
