"""Long texts, cut to what an answer may hold: the beginning and the end stay, the whole is kept in a file."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from paddock.tools.context import ToolContext

_HEAD_SHARE = 0.4
"""The end of an output says more than its beginning: that is where errors stand."""


_PIECE_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Excerpt:
    text: str
    file: str | None = None
    """Where the whole is, if this is not."""


async def excerpt(ctx: ToolContext, text: str, name: str, room: int | None = None) -> Excerpt:
    """The text, if it fits; else its two ends, with the whole in a file named after ``name``."""
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
    """In a file of its own; answers with its path."""
    path = f"{ctx.folder}/outputs/{name}-{secrets.token_hex(4)}.txt"
    await ctx.machine.write_file(path, _pieces(text), user=ctx.user)
    return path


async def _pieces(text: str) -> AsyncIterator[bytes]:
    for at in range(0, len(text), _PIECE_CHARACTERS):
        yield text[at : at + _PIECE_CHARACTERS].encode(errors="replace")
        await asyncio.sleep(0)


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data
