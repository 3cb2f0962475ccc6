"""Reading what the keeper's spool holds of a stream. Segments may be dropped while one reads: then one looks again."""

from __future__ import annotations

import os
from pathlib import Path

from paddock import errors
from paddock.machine.base import OutputChunk, Stream


def size(folder: Path, stream: Stream) -> int:
    """Bytes written so far, also those that are gone."""
    while segments := _segments(folder, stream):
        start, name = segments[-1]
        try:
            return start + (folder / name).stat().st_size
        except FileNotFoundError:
            continue
    return 0


def read(folder: Path, stream: Stream, offset: int, limit: int) -> OutputChunk:
    while True:
        try:
            return _read(folder, stream, offset, limit)
        except FileNotFoundError:
            continue


def _read(folder: Path, stream: Stream, offset: int, limit: int) -> OutputChunk:
    segments = _segments(folder, stream)
    begin = max(offset, segments[0][0]) if segments else offset
    data = bytearray()
    for start, name in segments:
        at = begin + len(data) - start
        if at < 0 or len(data) >= limit:
            break
        fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data += os.pread(fd, limit - len(data), at)
        finally:
            os.close(fd)
    return OutputChunk(stream, begin, bytes(data), begin - offset)


def _segments(folder: Path, stream: Stream) -> list[tuple[int, str]]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:  # its sandbox is deleted meanwhile: that is no empty output
        raise errors.ProcessNotFound(f"There is no process {folder.name!r} any more.") from None
    prefix = f"{stream}-"
    return sorted((int(name[len(prefix) :]), name) for name in names if name.startswith(prefix))
