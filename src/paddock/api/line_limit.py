"""Rate limit for log lines that unauthenticated clients can cause, per kind, with a count of dropped lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

LINES_PER_SECOND = 10


@dataclass(slots=True)
class _Second:
    began: float
    lines: int = 0
    left_out: int = 0


class LineLimit:
    """``tell`` is called at the end of each second in which lines were dropped, with the kind and their number."""

    def __init__(self, tell: Callable[[str, int], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._seconds: dict[str, _Second] = {}

    def admits(self, kind: str) -> bool:
        """``kind``: one of a fixed set, never chosen by a client."""
        now = self._monotonic()
        second = self._seconds.get(kind)
        if second is None or now - second.began >= 1:
            self._end(kind)
            second = self._seconds[kind] = _Second(now)
        second.lines += 1
        if second.lines <= LINES_PER_SECOND:
            return True
        second.left_out += 1
        if second.left_out == 1:
            with suppress(RuntimeError):  # called from a thread without an event loop: reported with the next line
                asyncio.get_running_loop().call_later(1, self._end, kind, second)
        return False

    def _end(self, kind: str, which: _Second | None = None) -> None:
        second = self._seconds.get(kind)
        if second is None or (which is not None and which is not second):
            return
        del self._seconds[kind]
        if second.left_out:
            self._tell(kind, second.left_out)
