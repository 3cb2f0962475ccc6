"""A file beside the database into which use is noted before it is answered for, and from which it is never lost.

A note is one write into the page cache, microseconds instead of a transaction. It survives the death of the process;
the database has it a moment later, under a number that it remembers in the same transaction, so that notes found after
a crash are carried over once and not twice. A file is locked by its server, and the kernel drops that lock with it.
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

_ENDING = ".notes"


@dataclass(frozen=True, slots=True)
class OrphanedNotes:
    """What a server left behind that is no more."""

    server_id: str
    notes: list[tuple[int, dict[str, Any]]]


class JournalFile:
    def __init__(self, folder: Path, server_id: str) -> None:
        self._folder = folder
        self._path = folder / f"{server_id}{_ENDING}"
        self._fd: int | None = None
        self._size = 0
        self.number = 0
        """Of the last note."""

    def open(self) -> None:
        """Where the folder cannot be written, notes are refused and callers wait for the database instead."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = _own(self._path)
        except OSError as error:
            log.warning("use is written to the database directly, which takes longer", problem=str(error))

    def note(self, what: Mapping[str, Any]) -> bool:
        """Durable when it returns; False when it could not be noted."""
        if self._fd is None:
            return False
        line = json.dumps([self.number + 1, what]).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                os.ftruncate(self._fd, self._size)  # half a line, on a disk that is full
                return False
        except OSError as error:
            log.warning("use could not be noted", problem=str(error))
            return False
        self._size += len(line)
        self.number += 1
        return True

    def settle(self, number: int) -> None:
        """Everything up to this note is in the database. With nothing after it the file is empty again."""
        if self._fd is not None and self._size and number == self.number:
            os.ftruncate(self._fd, 0)
            self._size = 0

    def close(self) -> None:
        """An empty file goes; one with notes stays for whoever comes next."""
        if self._fd is None:
            return
        if not self._size:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def leftovers(self) -> Iterator[OrphanedNotes]:
        """Notes of servers that are dead. When the caller comes back for the next, this one is dealt with and goes."""
        for path in sorted(self._folder.glob(f"*{_ENDING}")):
            if path == self._path:
                continue
            with _abandoned(path) as text:
                if text is not None:
                    yield OrphanedNotes(path.stem, list(_notes(text)))
                    path.unlink(missing_ok=True)


def _own(path: Path) -> int:
    """The file, locked and in its place: one that is not locked yet may be taken for a dead server's and removed."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_ino == os.fstat(fd).st_ino:
            return fd
        os.close(fd)


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[str | None]:
    """Its text, held so that no other server takes it; None where its server is alive."""
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
            return  # the write that the crash cut short
        yield number, what
