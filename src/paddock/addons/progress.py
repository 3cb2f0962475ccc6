"""Progress of an installation: the current step, its latest output, and the size on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MEASURE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    step: int
    """0 before the first step."""
    steps: int
    doing: str
    detail: str
    """The latest output line of the running program; empty at the beginning of a step."""
    size: int
    """Bytes on disk so far."""

    @property
    def text(self) -> str:
        numbered = f"step {self.step} of {self.steps}, {self.doing}" if self.step else self.doing or "beginning"
        return f"{numbered}, {self.size >> 20} MB" + (f": {self.detail}" if self.detail else "")


Hear = Callable[[Progress], None]


class ProgressReporter:
    """Receives the progress of recipes. Calling it with a line sets the detail of the current step."""

    def __init__(self, steps: int, hear: Hear) -> None:
        self._lock = threading.Lock()
        self._hear = hear
        self._steps = steps
        self._now = Progress(0, steps, "", "", 0)

    def __call__(self, line: str) -> None:
        self._tell(detail=line)

    def step(self, doing: str) -> None:
        with self._lock:
            number = self._now.step + 1
            self._now = Progress(number, max(number, self._steps), doing, "", self._now.size)
            self._hear(self._now)

    @contextmanager
    def measuring(self, folder: Path) -> Iterator[None]:
        """Report the size of this directory periodically during the context."""
        done = threading.Event()

        def measure() -> None:
            while not done.wait(_MEASURE_INTERVAL_S):
                self._tell(size=_size(folder))

        thread = threading.Thread(target=measure, name="size of an add-on", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _tell(self, *, detail: str | None = None, size: int | None = None) -> None:
        with self._lock:
            before = self._now
            detail = before.detail if detail is None else detail
            size = before.size if size is None else size
            self._now = Progress(before.step, before.steps, before.doing, detail, size)
            self._hear(self._now)


def _size(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - tens of thousands
            except FileNotFoundError:  # a temporary file of npm
                continue
    return size
