"""One command: its pipes or its terminal, its spool, its end."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time

from .holder import Holder
from .poller import READ, Poller
from .procfs import child_of, start_time, state
from .spool import Spool, write_whole
from .stdin import Stdin

TIOCSPTLCK = 0x40045431
TIOCGPTPEER = 0x5441
CHUNK = 1 << 16
DEFAULT_SIGNALS = {number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)}


class Process:
    """Begun by its constructor. ``started`` appears in its folder when it runs, ``status`` when it has ended."""

    def __init__(self, holder: Holder, poller: Poller, folder: str, limit: int) -> None:
        self._poller = poller
        self._folder = folder
        self._limit = limit
        with open(f"{folder}/command", "rb") as file:  # noqa: PTH123
            rows, cols, stdin, timeout, *argv = os.fsdecode(file.read()).split("\0")
        self.deadline = time.monotonic() + float(timeout) if timeout else None
        self.ended = False
        self.stopped = False
        self._timed_out = False
        self._leader = 0
        self._terminal = -1
        self._stdin: Stdin | None = None
        self._spools: dict[int, Spool] = {}
        self._ready, ready = _pipe()
        os.set_blocking(self._ready, False)
        poller.watch(self._ready, READ, self._on_ready)
        ends = self._open_terminal(holder, int(rows), int(cols)) if rows else self._open_pipes(stdin == "1")
        try:
            self.pid = self._start([*holder.enter(), *argv], (*ends, ready))
        finally:
            for fd in {*ends, ready}:
                os.close(fd)

    def _start(self, command: list[str], ends: tuple[int, ...]) -> int:
        return os.posix_spawnp(
            command[0],
            command,
            {"PATH": os.environ["PATH"]},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(ends)],
            setsigdef=DEFAULT_SIGNALS,
            setsigmask=(),
        )

    def _open_pipes(self, stdin: bool) -> tuple[int, int, int]:
        streams = []
        for stream in ("stdout", "stderr"):
            out, out_in = _pipe()
            self._spool(out, stream)
            streams.append(out_in)
        if not stdin:
            return _high(os.open("/dev/null", os.O_RDONLY)), streams[0], streams[1]
        inside, target = _pipe()
        self._stdin = Stdin(self._poller, f"{self._folder}/stdin", target, None)
        return inside, streams[0], streams[1]

    def _open_terminal(self, holder: Holder, rows: int, cols: int) -> tuple[int, int, int]:
        # In the sandbox's own devpts, so that `tty` inside knows it. It is a mount: nobody inside can replace it.
        path = f"/proc/{holder.init}/root/dev/pts/ptmx"
        master = self._terminal = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NOFOLLOW)
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        slave = _high(fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY))
        self.resize(rows, cols)
        self._spool(master, "stdout")
        self._stdin = Stdin(self._poller, f"{self._folder}/stdin", master, lambda: self._pump(master))
        return slave, slave, slave

    def _spool(self, fd: int, stream: str) -> None:
        os.set_blocking(fd, False)
        self._spools[fd] = Spool(self._folder, stream, self._limit)
        self._poller.watch(fd, READ, lambda: self._pump(fd))

    def resize(self, rows: int, cols: int) -> None:
        if self._terminal >= 0:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def finish_stdin(self) -> None:
        if self._stdin:
            self._stdin.finish()

    def look(self) -> None:
        """After a SIGCHLD: has it ended or stopped?"""
        if self.ended:
            return
        pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return
        if os.WIFSTOPPED(status):
            self.stopped = True
            return
        self._on_ready()
        self._end(status, usage.ru_utime + usage.ru_stime)

    def nudge(self) -> None:
        """nsenter stops when its child stops, and continues it when continued: so it may only go on after the child."""
        if self.stopped and state(self._leader) != "T":
            self.stopped = False
            os.kill(self.pid, signal.SIGCONT)

    def check_deadline(self, now: float) -> None:
        if self.ended or self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        self._timed_out = True
        if self._leader and state(self._leader):
            os.killpg(self._leader, signal.SIGKILL)
        else:
            os.kill(self.pid, signal.SIGKILL)

    @property
    def done(self) -> bool:
        """Ended, and nobody it left behind writes to its streams any more."""
        return self.ended and not self._spools

    def close(self) -> None:
        """Tell those who waited for the last byte."""
        write_whole(f"{self._folder}/closed", "")

    def _on_ready(self) -> None:
        """The first words from inside: the leader's line of ``/proc/self/stat``, before it becomes the command."""
        if self._ready < 0:
            return
        try:
            line = os.read(self._ready, CHUNK).split()
        except BlockingIOError:
            return
        self._poller.forget(self._ready)
        os.close(self._ready)
        self._ready = -1
        if line:
            self._leader = child_of(self.pid)
            inside, began = int(line[0]), int(line[21])
            entered = start_time(self.pid) or 0
            write_whole(f"{self._folder}/started", f"{self.pid} {entered} {self._leader} {began} {inside}\n")

    def _pump(self, fd: int) -> None:
        """Move what is there into the spool."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: nobody has the terminal open any more
            data = b""
        if data:
            self._spools[fd].write(data)
        else:
            self._end_stream(fd)

    def _end_stream(self, fd: int) -> None:
        if fd == self._terminal:
            self._terminal = -1
            if self._stdin:
                self._stdin.drop()
        self._poller.forget(fd)
        self._spools.pop(fd).close()
        os.close(fd)

    def _end(self, status: int, cpu: float) -> None:
        """All that it wrote is in its pipes by now. What it left in the background may write on."""
        self.ended = True
        self.stopped = False
        for fd in list(self._spools):
            while fd in self._spools and select.select([fd], [], [], 0)[0]:
                self._pump(fd)
        if self._stdin:
            self._stdin.drop()
        if self._terminal >= 0:
            self._end_stream(self._terminal)
        how, code = "exited", os.waitstatus_to_exitcode(status)
        if code < 0:
            how, code = "timed_out" if self._timed_out else "signalled", -code
        write_whole(f"{self._folder}/status", f"{how} {code} {cpu:.6f}\n")


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    return _high(reading), _high(writing)


def _high(fd: int) -> int:
    """The same file under a number that the child's own 0 to 3 do not overwrite."""
    if fd > 3:
        return fd
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return copy
