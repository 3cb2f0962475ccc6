"""Whole text files, for tools that change them: read, changed and written back without loss.

Changes of one file are serialized, so that neither undoes the other; a change made elsewhere between the read and the
write is detected and refused.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from paddock import errors
from paddock.machine.base import FileInfo, FileType
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once
from paddock.tools.tool import ToolFailed

MAX_TEXT = 16 << 20
"""Maximum bytes of a file that is changed as a whole."""

_locks: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Contents:
    info: FileInfo
    text: str
    """With its original line endings."""
    marked: bool
    """Whether it begins with a byte order mark, which is not part of ``text``."""

    @property
    def crlf(self) -> bool:
        """Whether every line ends with CRLF."""
        return "\r\n" in self.text and self.text.count("\n") == self.text.count("\r\n")


@asynccontextmanager
async def turn(ctx: ToolContext, path: str) -> AsyncIterator[None]:
    """Serialize changes of this file."""
    # A lock belongs to an event loop; the loop's id keeps those of two servers in one process apart.
    key = (id(asyncio.get_running_loop()), ctx.machine.sandbox_id, path)
    lock = _locks.setdefault(key, asyncio.Lock())
    async with lock:
        yield


async def load(ctx: ToolContext, path: str) -> Contents:
    info = await ctx.machine.stat(path, follow=True, user=ctx.user)
    if info.type is FileType.DIRECTORY:
        raise ToolFailed(f"{path} is a directory. List it with list_directory.")
    if info.size > MAX_TEXT:
        raise ToolFailed(f"{path} has {info.size} bytes; more than {MAX_TEXT} are changed with run_command (sed, awk).")
    data = b"".join([chunk async for chunk in ctx.machine.read_file(path, user=ctx.user)])
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        raise ToolFailed(
            f"{path} is not UTF-8 text (byte {problem.start}). Change it with a program, through run_command."
        ) from None
    if "\0" in text:
        raise ToolFailed(f"{path} is binary. Change it with a program, through run_command.")
    marked = data.startswith(codecs.BOM_UTF8)
    return Contents(info, text.removeprefix("\ufeff"), marked)


async def save(ctx: ToolContext, path: str, before: Contents | None, text: str) -> FileInfo:
    """``before``: the contents on which the change is based; None for a new file."""
    mode = None
    if before is not None:
        await _unchanged(ctx, path, before.info)
        mode = before.info.mode
    data = text.encode(errors="strict")
    if before is not None and before.marked:
        data = codecs.BOM_UTF8 + data
    # Through a symlink: replace the file it points to, not the link.
    target = path if before is None else (await ctx.machine.resolve(path, user=ctx.user)).path
    return await ctx.machine.write_file(target, once(data), mode=mode, user=ctx.user)


async def _unchanged(ctx: ToolContext, path: str, before: FileInfo) -> None:
    try:
        now = await ctx.machine.stat(path, follow=True, user=ctx.user)
    except errors.NotFound:
        raise ToolFailed(f"{path} was removed meanwhile. Nothing was changed.") from None
    if (now.size, now.modified_at) != (before.size, before.modified_at):
        raise ToolFailed(f"{path} was changed by something else meanwhile. Read it again, then repeat the change.")
