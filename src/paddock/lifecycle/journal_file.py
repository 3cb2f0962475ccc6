"""A file in which use is noted before the request is answered, so that a crash loses nothing.

A note is one write to the page cache: microseconds instead of a transaction. It survives the death of the process. The
database gets it a moment later, and stores its number in the same transaction, so that notes found after a crash are
carried over exactly once. A server holds a lock on its file, which the kernel releases when the server dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

_SUFFIX = ".notes"


@dataclass(frozen=True, slots=True)
class OrphanedNotes:
    """Notes of a server that is dead."""

    server_id: str
    notes: list[tuple[int, dict[str, Any]]]


class JournalFile:
    def __init__(self, folder: Path, server_id: str) -> None:
        self._folder = folder
        self._path = folder / f"{server_id}{_SUFFIX}"
        self._fd: int | None = None
        self._size = 0
        self.number = 0
        """Number of the last note."""

    def open(self) -> None:
        """If the folder is not writable, notes are refused and callers wait for the database instead."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = _open_locked(self._path)
        except OSError as error:
            log.warning("use is written to the database directly, which takes longer", problem=str(error))

    def note(self, what: Mapping[str, Any]) -> bool:
        """True if the note is durable on return; False if it could not be written."""
        if self._fd is None:
            return False
        line = json.dumps([self.number + 1, what]).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                os.ftruncate(self._fd, self._size)  # remove a partial line, as on a full disk
                return False
        except OSError as error:
            log.warning("use could not be noted", problem=str(error))
            return False
        self._size += len(line)
        self.number += 1
        return True

    def settle(self, number: int) -> None:
        """Everything up to this note is in the database. If it is the last one, the file is emptied."""
        if self._fd is not None and self._size and number == self.number:
            os.ftruncate(self._fd, 0)
            self._size = 0

    def close(self) -> None:
        """Delete the file if it is empty; keep one with notes for the next server."""
        if self._fd is None:
            return
        if not self._size:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def leftovers(self) -> Iterator[OrphanedNotes]:
        """Notes of dead servers. Advancing the iterator deletes the file of the previous item."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if path == self._path:
                continue
            with _abandoned(path) as text:
                if text is not None:
                    yield OrphanedNotes(path.stem, list(_notes(text)))
                    path.unlink(missing_ok=True)


def _open_locked(path: Path) -> int:
    """Open and lock the file. Repeats if another server removed the file before it was locked, taking it for a dead
    server's."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_ino == os.fstat(fd).st_ino:
            return fd
        os.close(fd)


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[str | None]:
    """The file's text, locked so that no other server takes it; None if its server is alive."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    with os.fdopen(fd, encoding="utf-8") as file:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file.read() if path.exists() else None


def _notes(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line in text.splitlines():
        try:
            number, what = json.loads(line)
        except ValueError:
            return  # a line that the crash cut short
        yield number, what
