"""Very long answers, written a piece at a time, so that others get their turn in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")

_AT_A_TIME = 500


async def json_items(items: Sequence[Item], shown: Callable[[Item], Any]) -> bytes:
    """What stands between the brackets of a JSON array."""
    pieces: list[bytes] = []
    for at in range(0, len(items), _AT_A_TIME):
        piece = json.dumps([shown(item) for item in items[at : at + _AT_A_TIME]], separators=(",", ":"))
        pieces.append(piece[1:-1].encode())
        await asyncio.sleep(0)
    return b",".join(pieces)
