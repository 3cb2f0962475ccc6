"""Event-loop watchdog: logs whatever blocks the loop for longer than a tenth of a second, with its stack.

A timer on the loop fires a few times per threshold. A thread notices when it is overdue, and takes the stack of the
loop's thread. The next timer event knows how long the stall was, and what it was spent on: CPU time, waiting for a core
(as counted by the kernel), or being blocked, in a system call or on the GIL. Waiting for a core of a busy host is not
counted as a stall.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass
from types import FrameType

import structlog

log = structlog.get_logger(__name__)

_BEATS_PER_THRESHOLD = 2
"""Timer events per threshold."""
_STACK_LINES = 12
_KEPT_STALLS = 32
_LONG_STALL_S = 2.0
"""A stall this long may never end: it is logged while it lasts, and again each time its length has doubled."""


_Place = tuple[str, int, str, str | None]
"""File, line, function, and the line's text if known, as ``traceback`` takes them."""


@dataclass(frozen=True, slots=True)
class LoopStall:
    seconds: float
    """How late the loop was."""
    cpu_seconds: float
    """Part of it that was CPU time of the loop's thread."""
    starved_seconds: float
    """Part of it that the thread was runnable while other processes had the cores."""
    stack: tuple[str, ...]

    @property
    def own_seconds(self) -> float:
        """Without the time in which other processes had the cores."""
        return self.seconds - self.starved_seconds


@dataclass(frozen=True, slots=True)
class _Clocks:
    cpu: float
    starved: float


class LoopWatchdog:
    """``threshold`` in seconds; 0 turns the watchdog off. Counts only stalls whose own time exceeds it."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._interval = threshold / _BEATS_PER_THRESHOLD
        self.count = 0
        """Stalls since the start."""
        self.stalls: deque[LoopStall] = deque(maxlen=_KEPT_STALLS)
        """The latest stalls."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._seen: tuple[float, list[_Place]] | None = None
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None
        self._schedule: int | None = None

    def start(self) -> None:
        """Must be called on the loop."""
        if not self._threshold:
            return
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._thread)
        self._schedule = _open_schedule(threading.get_native_id())
        self._stop.clear()
        self._rest()
        self._sampler = threading.Thread(target=self._sample, name="loop watchdog", daemon=True)
        self._sampler.start()

    def stop(self) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sampler is not None:
            self._sampler.join()
            self._sampler = None
        if self._schedule is not None:
            os.close(self._schedule)
            self._schedule = None

    # On the loop

    def _rest(self) -> None:
        self._clocks = self._read_clocks()
        self._due = time.monotonic() + self._interval
        self._timer = self._loop.call_later(self._interval, self._beat)

    def _beat(self) -> None:
        late = time.monotonic() - self._due
        if late > self._threshold:
            self._record(late)
        self._seen = None
        self._rest()

    def _record(self, late: float) -> None:
        now, then = self._read_clocks(), self._clocks
        # The interval before the timer was due may have been busy too; only the lateness is reported.
        cpu, starved = (
            min(late, after - before) for after, before in ((now.cpu, then.cpu), (now.starved, then.starved))
        )
        places = self._seen[1] if self._seen is not None and self._seen[0] == self._due else []
        stack = tuple(traceback.format_list(places))
        stall = LoopStall(round(late, 3), round(cpu, 3), round(starved, 3), stack)
        if stall.own_seconds <= self._threshold:
            return
        self.count += 1
        self.stalls.append(stall)
        log.warning(
            "the event loop was blocked",
            seconds=stall.seconds,
            cpu_seconds=stall.cpu_seconds,
            starved_seconds=stall.starved_seconds,
            stack="".join(stack) or "not seen",
        )

    def _read_clocks(self) -> _Clocks:
        starved = 0 if self._schedule is None else int(os.pread(self._schedule, 100, 0).split()[1])
        return _Clocks(time.clock_gettime(self._cpu_clock), starved / 1e9)

    # In the thread

    def _log_unfinished(self, late: float) -> None:
        """Log from the watchdog thread: the loop, which records finished stalls, may never get to run."""
        stack = "".join(traceback.format_list(_places(sys._current_frames().get(self._thread))))
        log.error("the event loop is blocked", seconds=round(late, 3), stack=stack or "not seen")

    def _sample(self) -> None:
        """Sample the loop's stack when it is late. While C code holds the GIL this thread does not run either; when it
        runs again, the loop's thread is still in the function that made the call. Ends with the loop, also without
        ``stop``."""
        pause = self._interval
        logged = 0.0
        while not self._stop.wait(pause) and not self._loop.is_closed():
            due = self._due
            late = time.monotonic() - due
            if late < self._threshold:
                logged = 0.0
            elif late > max(_LONG_STALL_S, 2 * logged):
                logged = late
                self._log_unfinished(late)
            left = due + self._threshold - time.monotonic()
            pause = max(left, self._interval)
            if left >= 0 or (self._seen is not None and self._seen[0] == due):
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is None:
                return
            if self._due == due:
                self._seen = due, _places(frame)


def _places(frame: FrameType | None) -> list[_Place]:
    """The call stack, innermost frame last. Source lines are read later: reading files here would release the GIL to
    the loop's thread, which may keep it until its next timer event."""
    places: list[_Place] = []
    while frame is not None and len(places) < _STACK_LINES:
        places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None))
        frame = frame.f_back
    return places[::-1]


def _open_schedule(thread: int) -> int | None:
    """The kernel's count of how long a thread ran and waited to run (Documentation/scheduler/sched-stats)."""
    try:
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not supported by this kernel: then all lateness counts
        return None
