"""How much of a processor somebody had: unlike the time that passed, it does not grow because the machine is busy."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Of a process with all its threads."""
    return _seconds(Path(f"/proc/{pid}/stat"))


def loop_cpu_seconds(pid: int) -> float:
    """Of a server's first thread, in which its event loop runs."""
    return _seconds(Path(f"/proc/{pid}/task/{pid}/stat"))


def _seconds(stat: Path) -> float:
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
