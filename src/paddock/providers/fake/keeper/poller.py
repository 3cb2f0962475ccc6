"""Which file descriptor calls what when it is ready."""

from __future__ import annotations

import select
from collections.abc import Callable

READ = select.POLLIN
WRITE = select.POLLOUT


class Poller:
    """A callback may be called once for nothing when descriptors are reused, so it must not block."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[], object]] = {}

    def watch(self, fd: int, events: int, call: Callable[[], object]) -> None:
        self._poll.register(fd, events)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        if self._calls.pop(fd, None):
            self._poll.unregister(fd)

    def wait(self, seconds: float | None) -> None:
        for fd, _ in self._poll.poll(None if seconds is None else max(0.0, seconds * 1000)):
            if call := self._calls.get(fd):
                call()
