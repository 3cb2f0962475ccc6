"""Very long answers, written a piece at a time, so that others get their turn in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from paddock.accounts.byte_budget import Reservation

Item = TypeVar("Item")

_AT_A_TIME = 500
_COPIES = 2
"""In pieces, and as the answer."""


async def json_items(items: Sequence[Item], shown: Callable[[Item], Any], holding: Reservation) -> bytes:
    """What stands between the brackets of a JSON array. Counted as it grows: raises TooManyBytes or Overloaded."""

    async def shown_now(some: Sequence[Item]) -> list[Any]:
        return [shown(item) for item in some]

    return await json_pieces(items, shown_now, holding)


async def json_pieces(
    items: Sequence[Item], shown: Callable[[Sequence[Item]], Awaitable[list[Any]]], holding: Reservation
) -> bytes:
    """The same where it has to be asked what is shown, about some hundred items at a time."""
    pieces: list[bytes] = []
    size = 0
    for at in range(0, len(items), _AT_A_TIME):
        piece = json.dumps(await shown(items[at : at + _AT_A_TIME]), separators=(",", ":"))
        pieces.append(piece[1:-1].encode("ascii", "backslashreplace"))
        size += len(piece)
        holding.reserve(_COPIES * size)
        await asyncio.sleep(0)
    return b",".join(pieces)
