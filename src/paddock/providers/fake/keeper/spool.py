"""Output kept on disk within bounds, without moving a byte: a stream is a row of segments, and old ones are dropped."""

from __future__ import annotations

import os


class Spool:
    """Segments ``<stream>-<offset>``, at most two: so the last ``limit`` bytes are always there."""

    def __init__(self, folder: str, stream: str, limit: int) -> None:
        self._base = f"{folder}/{stream}-"
        self._limit = limit
        self._names: list[str] = []
        self._end = 0
        self._room = 0
        self._file = -1
        self._turn()

    def write(self, data: bytes) -> None:
        """A full disk loses output, never the sandbox."""
        view = memoryview(data)
        try:
            while view:
                if self._room == 0:
                    self._turn()
                written = os.write(self._file, view[: self._room])
                self._room -= written
                self._end += written
                view = view[written:]
        except OSError:
            return

    def close(self) -> None:
        os.close(self._file)

    def _turn(self) -> None:
        name = f"{self._base}{self._end:020d}"
        fresh = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file = fresh
        self._room = self._limit
        self._names.append(name)
        if len(self._names) > 2:
            os.unlink(self._names.pop(0))  # noqa: PTH108


def write_whole(path: str, text: str) -> None:
    """A small file, all or nothing for whoever reads it meanwhile."""
    with open(path + ".new", "w") as file:  # noqa: PTH123
        file.write(text)
    os.replace(path + ".new", path)  # noqa: PTH105
