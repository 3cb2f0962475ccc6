"""A pseudo-terminal with the program on it, as somebody who sits there has it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.conftest import COMMAND, Paddock
from tests.support.waiting import PATIENCE_S


class Screen:
    def __init__(self, paddock: Paddock, *words: str, rows: int = 30, cols: int = 100) -> None:
        self._master, self._slave = os.openpty()
        self.resize(rows, cols, tell=False)
        self.before = self.attributes()
        self.shown = b""
        self.process = subprocess.Popen(
            (*COMMAND, *words),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=paddock.env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def resize(self, rows: int, cols: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, text: bytes) -> bytes:
        """Everything that came since the last call, up to this text."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.shown!r}"
            self._read(deadline - time.monotonic())
        head, _, self.shown = self.shown.partition(text)
        return head + text

    def end(self) -> int:
        """Its exit code. What it writes meanwhile is read, as by any terminal."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, f"it did not end: {self.shown!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return code

    def hang_up(self) -> None:
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, seconds))
        if ready:
            self.shown += os.read(self._master, 65536)
        return bool(ready)


@contextmanager
def screen(paddock: Paddock, *words: str) -> Iterator[Screen]:
    made = Screen(paddock, *words)
    try:
        yield made
    finally:
        made.close()
