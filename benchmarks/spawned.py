"""Processes started with the cheapest method, several at once, each with its own timing."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Timing:
    started: float
    first_output: float = 0.0
    """Seconds from the start to the first byte."""
    end: float = 0.0
    """Seconds from the start to the exit code."""


def spawn(argv: Sequence[str], *, count: int = 1) -> list[Timing]:
    """Start ``count`` instances of a program at once, by posix_spawn, with a pipe each. Raises if one fails."""
    return spawn_each([argv] * count)


def spawn_each(programs: Sequence[Sequence[str]]) -> list[Timing]:
    """Start these programs at once."""
    poll = select.poll()
    running: dict[int, tuple[int, Timing, Sequence[str]]] = {}
    timings = []
    for argv in programs:
        read, write = os.pipe2(os.O_CLOEXEC)
        timing = Timing(time.perf_counter())
        pid = os.posix_spawn(argv[0], list(argv), os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
        os.close(write)
        poll.register(read, select.POLLIN)
        running[read] = (pid, timing, argv)
        timings.append(timing)
    while running:
        for descriptor, _ in poll.poll():
            pid, timing, argv = running[descriptor]
            if os.read(descriptor, 65536):
                timing.first_output = timing.first_output or time.perf_counter() - timing.started
                continue
            poll.unregister(descriptor)
            os.close(descriptor)
            del running[descriptor]
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            timing.end = time.perf_counter() - timing.started
            if status or not timing.first_output:
                raise RuntimeError(f"{' '.join(argv)} ended with {status}")
    return timings
