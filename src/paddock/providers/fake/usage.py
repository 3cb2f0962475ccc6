"""What a sandbox uses: real numbers, from ``/proc`` and the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from paddock import errors
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
    """By ``du``, which counts hard links once and minds neither depth nor closed directories."""
    done = subprocess.run(["du", "-sk", "--", root], capture_output=True, text=True, check=False)
    try:
        return int(done.stdout.split()[0]) * 1024
    except (IndexError, ValueError):
        raise errors.ProviderUnavailable(f"The disk usage cannot be read: {done.stderr.strip()[:300]}") from None
