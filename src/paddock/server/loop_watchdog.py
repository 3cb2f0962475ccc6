"""Watches the event loop: whatever keeps it longer than a tenth of a second is logged, with its stack.

A timer of the loop beats a few times within the threshold; a thread notices when a beat is overdue, and reads where
the loop's thread is. The next beat knows how long it was, and what the time went into: computing, waiting for a core
of a busy machine (which the kernel counts), or being blocked, be it in a system call or behind the interpreter's lock.
A machine that is merely busy is no fault of what runs on the loop, and is not counted.
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

_BEATS = 2
"""Per threshold."""
_STACK_LINES = 12
_KEPT_STALLS = 32
_LONG_STALL_S = 2.0
"""So long that it may never end: it is logged while it lasts, and again each time it has doubled."""


_Place = tuple[str, int, str, str | None]
"""File, line, function, and the line's text where it is known: as ``traceback`` takes them."""


@dataclass(frozen=True, slots=True)
class LoopStall:
    seconds: float
    """How much too late the loop was."""
    cpu_seconds: float
    """Of them, computing on the loop's thread."""
    starved_seconds: float
    """Of them, ready to run while other processes had the cores."""
    stack: tuple[str, ...]

    @property
    def own_seconds(self) -> float:
        """Without the time in which the machine was busy with others."""
        return self.seconds - self.starved_seconds


@dataclass(frozen=True, slots=True)
class _Clocks:
    cpu: float
    starved: float


class LoopWatchdog:
    """``threshold`` in seconds; 0 turns it off. Counts only stalls of which so much is the loop's own doing."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._interval = threshold / _BEATS
        self.count = 0
        """Since the start."""
        self.stalls: deque[LoopStall] = deque(maxlen=_KEPT_STALLS)
        """The latest of them."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._seen: tuple[float, list[_Place]] | None = None
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None
        self._schedule: int | None = None

    def start(self) -> None:
        """From within the loop."""
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
        # The interval before the beat was due may have been busy too; no more than the lateness is of interest.
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

    # In a thread

    def _log_unfinished(self, late: float) -> None:
        """From this thread: the loop, which records what is over, may not come to it."""
        stack = "".join(traceback.format_list(_places(sys._current_frames().get(self._thread))))
        log.error("the event loop is blocked", seconds=round(late, 3), stack=stack or "not seen")

    def _sample(self) -> None:
        """While C code holds the interpreter's lock this thread does not run either; when it does, the loop's thread
        is still in the function that made the call. Ends with the loop, also where nobody stopped it."""
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
    """Where it is and who called it, the latest last. The lines themselves are read later: whoever reads a file gives
    the loop's thread the interpreter, which may keep it until its next beat."""
    places: list[_Place] = []
    while frame is not None and len(places) < _STACK_LINES:
        places.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None))
        frame = frame.f_back
    return places[::-1]


def _open_schedule(thread: int) -> int | None:
    """The kernel's own count of how long a thread ran, and waited to run (Documentation/scheduler/sched-stats)."""
    try:
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without it: then all that is late counts
        return None
