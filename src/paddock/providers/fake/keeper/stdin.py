"""The way of input: from a FIFO that any server may write to, into the command's pipe or terminal."""

from __future__ import annotations

import os
from collections.abc import Callable

from .poller import READ, WRITE, Poller

CHUNK = 1 << 16


class Stdin:
    """Takes from the FIFO only what it could pass on before, so a command that does not read slows its writer down."""

    def __init__(self, poller: Poller, fifo: str, target: int, terminal_output: Callable[[], object] | None) -> None:
        self._poller = poller
        self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        self._target = target
        self._terminal_output = terminal_output
        """For a terminal, whose one descriptor goes both ways: what to call when there is output."""
        self._pending = b""
        self._closing = False
        os.set_blocking(target, False)
        poller.watch(self._fifo, READ, self._take)

    def finish(self) -> None:
        """What was written before still arrives, then the end of the input."""
        self._closing = True
        if self._fifo >= 0 and not self._pending:
            self._take()

    def drop(self) -> None:
        """At once: whoever writes from now on learns that nobody reads."""
        if self._fifo < 0:
            return
        self._poller.forget(self._fifo)
        os.close(self._fifo)
        self._fifo = -1
        if self._terminal_output is None:
            self._poller.forget(self._target)
            os.close(self._target)

    def _take(self) -> None:
        try:
            self._pending = os.read(self._fifo, CHUNK)
        except BlockingIOError:
            if self._closing:
                self.drop()
            return
        self._poller.forget(self._fifo)
        self._pass_on()

    def _pass_on(self) -> None:
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._target, self._pending) :]
        except BlockingIOError:
            self._poller.watch(self._target, WRITE | (READ if self._terminal_output else 0), self._on_target)
            return
        except OSError:
            self._pending = b""
            self.drop()
            return
        self._rest()
        if self._closing:
            self._take()

    def _rest(self) -> None:
        """Everything is passed on: wait for more."""
        if self._terminal_output:
            self._poller.watch(self._target, READ, self._terminal_output)
        else:
            self._poller.forget(self._target)
        self._poller.watch(self._fifo, READ, self._take)

    def _on_target(self) -> None:
        if self._terminal_output:
            self._terminal_output()
        if self._fifo >= 0:
            self._pass_on()
