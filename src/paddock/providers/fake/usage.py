"""What a sandbox uses: real numbers, from ``/proc`` and the disk."""

from __future__ import annotations

import os
from pathlib import Path

from paddock.clock import Clock
from paddock.machine.base import MachineStats
from paddock.providers.fake.folder import Folder
from paddock.providers.fake.keeper import procfs
from paddock.providers.fake.namespaces import Namespaces
from paddock.providers.fake.processes import Processes

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEGABYTE = 1 << 20


def measure(folder: Folder, namespaces: Namespaces, processes: Processes, clock: Clock) -> MachineStats:
    """Blocks: use a thread. CPU time counts the living and the commands that have ended."""
    limits = folder.existing().resources
    cpu = sum(ended.cpu_seconds for record in processes.records() if (ended := record.ended()))
    memory = count = 0
    for pid in namespaces.members():
        fields = procfs.stat_fields(pid)
        if fields and fields[0] not in ("Z", "X"):
            count += 1
            cpu += sum(map(int, fields[11:15])) / _TICK
            memory += int(fields[21]) * _PAGE
    return MachineStats(
        at=clock.now(),
        cpu_count=limits.cpu,
        cpu_seconds=cpu,
        memory_used=memory,
        memory_total=limits.memory_mb * _MEGABYTE,
        disk_used=_disk_used(folder.root),
        disk_total=limits.disk_mb * _MEGABYTE,
        process_count=count,
    )


def _disk_used(root: Path) -> int:
    """As ``du`` counts: blocks, hard links once, symlinks not followed."""
    total = 0
    seen: set[tuple[int, int]] = set()
    for _, _, names, fd in os.fwalk(root, follow_symlinks=False):
        for name in [*names, "."]:
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if found.st_nlink == 1 or name == "." or (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total
