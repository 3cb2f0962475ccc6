"""Reads files for a model: pages of numbered lines, and images."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from paddock.machine.base import FileInfo
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed

MAX_PICTURE = 5 << 20
MAX_LINE = 2000
_MAX_COUNTED = 256 << 20
"""Maximum bytes read to count lines."""
_BEGINNING_BYTES = 8192


@dataclass
class TextPage:
    lines: list[str] = field(default_factory=list)
    """With their line ends."""
    total: int | None = 0
    more: bool = False
    cut: bool = False


def tidy(path: str) -> str:
    """Normalize a path: removes ``.``, ``..`` and redundant slashes."""
    return "/" + posixpath.normpath(path).lstrip("/")


async def beginning(ctx: ToolContext, path: str) -> bytes:
    return b"".join([chunk async for chunk in ctx.machine.read_file(path, 0, _BEGINNING_BYTES, user=ctx.user)])


def picture_type(begin: bytes) -> str | None:
    if begin.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if begin.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if begin.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return "image/webp"
    return None


async def picture(ctx: ToolContext, info: FileInfo, path: str) -> bytes:
    if info.size > MAX_PICTURE:
        raise ToolFailed(
            f"{path} is a picture of {info.size} bytes; at most {MAX_PICTURE} can be shown. "
            "Make a smaller copy with a program, through run_command, and read that."
        )
    return b"".join([chunk async for chunk in ctx.machine.read_file(path, user=ctx.user)])


async def lines(ctx: ToolContext, path: str, offset: int, limit: int) -> TextPage:
    """Lines from ``offset`` on, as many as requested and fit; the others are only counted."""
    page, counter = TextPage(), _LineCollector(offset, limit, ctx.inline)
    async for chunk in ctx.machine.read_file(path, user=ctx.user):
        counter.feed(chunk)
        if counter.seen > _MAX_COUNTED and counter.full:
            page.total = None
            break
    counter.end()
    if page.total is not None:
        page.total = counter.number
    page.lines, page.cut = counter.taken, counter.cut
    page.more = page.total is None or offset + len(page.lines) <= page.total
    return page


class _LineCollector:
    """Splits a file into lines, and keeps only the requested ones in memory."""

    def __init__(self, offset: int, limit: int, room: int) -> None:
        self._offset, self._limit, self._room = offset, limit, room
        self._line = bytearray()
        self._length = 0
        self.number = 0
        """Number of complete lines so far."""
        self.seen = 0
        self.full = False
        self.taken: list[str] = []
        self.cut = False

    def feed(self, chunk: bytes) -> None:
        self.seen += len(chunk)
        if not self._wanted_in(chunk):
            self.number += chunk.count(b"\n")
            at = chunk.rfind(b"\n")
            self._length = self._length + len(chunk) if at < 0 else len(chunk) - at - 1
            return
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            self._finish(b"\n")
        self._add(rest)

    def end(self) -> None:
        if self._length:
            self._finish(b"")

    def _wanted_in(self, chunk: bytes) -> bool:
        """Whether a line of this chunk may be requested."""
        return not self.full and self.number + chunk.count(b"\n") + 1 >= self._offset

    def _add(self, part: bytes) -> None:
        # A character has at most four bytes; what will be cut later can be cut here.
        self._line += part[: max(0, 4 * MAX_LINE + 8 - len(self._line))]
        self._length += len(part)

    def _finish(self, ending: bytes) -> None:
        self.number += 1
        if self._offset <= self.number and not self.full:
            text = (bytes(self._line) + (ending if self._length == len(self._line) else b"")).decode(errors="replace")
            if len(text.rstrip("\r\n")) > MAX_LINE:
                text, self.cut = text[:MAX_LINE] + " …\n", True
            if self.taken and len(text) > self._room:
                self.full = True
            else:
                self._room -= len(text) + 8
                self.taken.append(text)
                self.full = len(self.taken) >= self._limit
        self._line.clear()
        self._length = 0


def numbered(page: TextPage, offset: int) -> str:
    if not page.lines:
        return "The file is empty."
    said = [f"{number:6}\t{line.rstrip(chr(13) + chr(10))}" for number, line in enumerate(page.lines, offset)]
    if page.more:
        last = offset + len(page.lines) - 1
        of = "a very large file" if page.total is None else f"{page.total} lines"
        said.append(f"(lines {offset}-{last} of {of}; read on with offset {last + 1})")
    return "\n".join(said)
