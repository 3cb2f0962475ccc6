"""The text of a file as a whole, for tools that change it: read, changed and written back without losing anything.

Two changes of one file wait for each other, so that neither undoes the other; a change from elsewhere between the
read and the write is noticed, and refused.
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
"""Bytes of the largest file that is changed as a whole."""

_locks: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Contents:
    info: FileInfo
    text: str
    """With the line endings that it has."""
    marked: bool
    """Begins with a byte order mark, which is not part of ``text``."""

    @property
    def crlf(self) -> bool:
        """Every line ends as on Windows."""
        return "\r\n" in self.text and self.text.count("\n") == self.text.count("\r\n")


@asynccontextmanager
async def turn(ctx: ToolContext, path: str) -> AsyncIterator[None]:
    """Whoever changes this file next waits until this one is done."""
    # A lock belongs to a loop; the number of the loop keeps those of two servers in one process apart.
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
    """``before``: what the change was made of; None for a file that is new."""
    mode = None
    if before is not None:
        await _unchanged(ctx, path, before.info)
        mode = before.info.mode
    data = text.encode(errors="strict")
    if before is not None and before.marked:
        data = codecs.BOM_UTF8 + data
    # Through a symlink: the file that it stands for is replaced, not the link.
    target = path if before is None else (await ctx.machine.resolve(path, user=ctx.user)).path
    return await ctx.machine.write_file(target, once(data), mode=mode, user=ctx.user)


async def _unchanged(ctx: ToolContext, path: str, before: FileInfo) -> None:
    try:
        now = await ctx.machine.stat(path, follow=True, user=ctx.user)
    except errors.NotFound:
        raise ToolFailed(f"{path} was removed meanwhile. Nothing was changed.") from None
    if (now.size, now.modified_at) != (before.size, before.modified_at):
        raise ToolFailed(f"{path} was changed by something else meanwhile. Read it again, then repeat the change.")
