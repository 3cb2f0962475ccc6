"""Large JSON that somebody else wrote, read where it holds up nobody."""

from __future__ import annotations

import json
from typing import Any, Final

from paddock import json_limits
from paddock.workers import Workers

_CHEAP_FACTOR: Final = 8
"""What is large is mostly one string, which is read at a millisecond or two per megabyte: most pictures need no
worker."""


async def loads(text: bytes, workers: Workers, most: int = json_limits.MAX_SANDBOX_VALUES) -> Any:
    """Raises Invalid for too many values, ValueError for what is no JSON or nested too deeply to be read."""
    await json_limits.check_large(text, most)
    return await workers.call(len(text) // _CHEAP_FACTOR, read, text)


def read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
