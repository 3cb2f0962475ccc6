"""Encodes very long JSON answers in parts, so that other tasks run in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from paddock.accounts.byte_budget import Reservation

Item = TypeVar("Item")

_AT_A_TIME = 500
_COPIES = 2
"""Copies in memory: the parts, and the answer."""


async def json_items(items: Sequence[Item], shown: Callable[[Item], Any], holding: Reservation) -> bytes:
    """The items of a JSON array as bytes, without brackets. Reserves memory as it grows: raises TooManyBytes or
    Overloaded."""

    async def shown_now(some: Sequence[Item]) -> list[Any]:
        return [shown(item) for item in some]

    return await json_pieces(items, shown_now, holding)


async def json_pieces(
    items: Sequence[Item], shown: Callable[[Sequence[Item]], Awaitable[list[Any]]], holding: Reservation
) -> bytes:
    """The same for items that are converted while encoding, about a hundred at a time."""
    pieces: list[bytes] = []
    size = 0
    for at in range(0, len(items), _AT_A_TIME):
        piece = json.dumps(await shown(items[at : at + _AT_A_TIME]), separators=(",", ":"))
        pieces.append(piece[1:-1].encode("ascii", "backslashreplace"))
        size += len(piece)
        holding.reserve(_COPIES * size)
        await asyncio.sleep(0)
    return b",".join(pieces)
