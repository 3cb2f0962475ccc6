"""Shortens long texts to what a reply may hold: keeps the beginning and the end; the whole text is stored in a file."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from paddock.tools.context import ToolContext

_HEAD_SHARE = 0.4
"""The end of an output is more useful than its beginning, because errors are there."""


_CHUNK_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Excerpt:
    text: str
    file: str | None = None
    """File with the whole text, if this is an excerpt."""


async def excerpt(ctx: ToolContext, text: str, name: str, room: int | None = None) -> Excerpt:
    """The text if it fits; else its beginning and end, with the whole stored in a file named after ``name``."""
    room = ctx.inline if room is None else room
    if len(text) <= room:
        return Excerpt(text)
    path = await keep(ctx, text, name)
    return Excerpt(cut(text, room, f"the whole is in {path}: read it with read_file"), path)


def cut(text: str, room: int, where: str) -> str:
    head = int(room * _HEAD_SHARE)
    tail = max(0, room - head)
    left_out = len(text) - head - tail
    if left_out <= 0:
        return text
    return f"{text[:head]}\n… {left_out} characters left out; {where} …\n{text[len(text) - tail :]}"


async def keep(ctx: ToolContext, text: str, name: str) -> str:
    """Store the text in a new file; returns its path."""
    path = f"{ctx.folder}/outputs/{name}-{secrets.token_hex(4)}.txt"
    await ctx.machine.write_file(path, _pieces(text), user=ctx.user)
    return path


async def _pieces(text: str) -> AsyncIterator[bytes]:
    for at in range(0, len(text), _CHUNK_CHARACTERS):
        yield text[at : at + _CHUNK_CHARACTERS].encode(errors="replace")
        await asyncio.sleep(0)


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data
