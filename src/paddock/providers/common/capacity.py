"""Total capacity of this machine: cores, memory, and the file system that holds the sandboxes' disks."""

from __future__ import annotations

import os
from pathlib import Path

from paddock.providers.base import Capacity

_MIB = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def host_capacity(disks: Path) -> Capacity:
    """Blocking: a few small reads."""
    return Capacity(
        cpu=float(os.cpu_count() or 1),
        memory_mb=memory_bytes() // _MIB,
        disk_mb=_disk_bytes(disks) // _MIB,
        pids=_pid_max(),
    )


def memory_bytes() -> int:
    """Memory of the machine, or of the container that this process runs in if that has less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_group_limits()])


def _group_limits() -> list[int]:
    """``memory.max`` of this process's cgroup and its parents (cgroup v2), or the one limit of v1."""
    limits = []
    for line in (_PROC / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            group = _CGROUP / path.lstrip("/")
            limits += [_number(folder / "memory.max") for folder in (group, *group.parents) if _within(folder)]
        elif "memory" in controllers.split(","):
            limits.append(_number(_CGROUP / "memory" / path.lstrip("/") / "memory.limit_in_bytes"))
    return [limit for limit in limits if limit]


def _within(folder: Path) -> bool:
    return folder == _CGROUP or _CGROUP in folder.parents


def _number(file: Path) -> int:
    """0 if there is no number: the file is missing or contains ``max``."""
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _disk_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize


def _pid_max() -> int:
    return _number(_PROC / "sys" / "kernel" / "pid_max") or 1 << 15
