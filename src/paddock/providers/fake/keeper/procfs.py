"""What ``/proc`` says about a process. A process that is gone has no answers, which is no error."""

from __future__ import annotations

import os


def stat_fields(pid: int) -> list[str]:
    """Fields of ``/proc/<pid>/stat`` from the third (state) on: a name may hold anything, so count from its end."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def state(pid: int) -> str:
    """One letter, ``Z`` for a zombie, ``T`` for stopped; empty when there is no such process."""
    return next(iter(stat_fields(pid)), "")


def start_time(pid: int) -> int | None:
    """In ticks since boot: together with the pid it names a process for good."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def is_alive(pid: int, started: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] not in ("Z", "X")


def child_of(pid: int) -> int:
    """The first child, or 0."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
            return int((file.read().split() or ["0"])[0])
    except FileNotFoundError:  # gone, or a kernel without CONFIG_PROC_CHILDREN
        return next((other for other in all_pids() if stat_fields(other)[1:2] == [str(pid)]), 0)


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
