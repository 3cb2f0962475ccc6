"""The exit status of a process that is not a child of this one, if the kernel tells it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from pathlib import Path

_GET_INFO = 0xC040FF0B
"""``_IOWR(0xFF, 11, struct pidfd_info)``, of 64 bytes."""
_INFO = struct.Struct("<QQ11Ii")
"""mask, cgroup, eleven ids, exit status (linux/pidfd.h)."""
_PIDFD_INFO_EXIT = 1 << 3


def exit_status(pid: int, pidfd: int) -> int | None:
    """Wait status of a process that is a zombie, or (from Linux 6.15) has been reaped."""
    status = _of_zombie(pid)
    return _of_reaped(pidfd) if status is None else status


def describe(status: int) -> str:
    """For messages: ``was killed by SIGKILL``, ``exited with 1``."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"was killed by {name}"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


def _of_zombie(pid: int) -> int | None:
    """The pid may have been reused: the new process is not a zombie, unless it has just ended, too."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[49]) if fields[0] in "ZX" else None


def _of_reaped(pidfd: int) -> int | None:
    asked = bytearray(_INFO.pack(_PIDFD_INFO_EXIT, *(0,) * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:  # an older kernel, or the process is just being reaped
        return None
    found = _INFO.unpack(asked)
    return int(found[13]) if found[0] & _PIDFD_INFO_EXIT else None
