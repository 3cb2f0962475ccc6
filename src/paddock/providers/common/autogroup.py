"""The scheduler's groups of sessions (autogroup): the weight of one is lowered, so that all its processes yield.

In such a group a process's own priority counts only against processes of the same session. An ordinary user may lower
ten of them a second; what is refused is asked for again at the next look.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

_SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")
_LOWEST = b"19"
_TIMEOUT_S = 2.0


class Autogroups:
    def __init__(self) -> None:
        self._lowered: set[int] = set()

    def forget_all_but(self, sessions: Collection[int]) -> None:
        """Those that have ended, whose numbers may be given anew."""
        self._lowered.intersection_update(sessions)

    def lower(self, session: int, pid: int, agent: int) -> None:
        """By any process of the session; ``agent``: a process of the sandbox that has its user namespace."""
        if session not in self._lowered and _enabled() and _lower(pid, agent):
            self._lowered.add(session)


def _enabled() -> bool:
    try:
        return _SWITCH.read_bytes().strip() == b"1"
    except FileNotFoundError:
        return False


def _lower(pid: int, agent: int) -> bool:
    """False where it is worth another try."""
    try:
        descriptor = os.open(f"/proc/{pid}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except PermissionError:
        return _lower_from_inside(pid, agent)
    except OSError:
        return False
    try:
        os.write(descriptor, _LOWEST)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.ESRCH)
    finally:
        os.close(descriptor)
    return True


def _lower_from_inside(pid: int, agent: int) -> bool:
    """The process has another user id: as root of its user namespace, whose owner we are."""
    if (nsenter := shutil.which("nsenter")) is None:
        return True
    words = [nsenter, "--user", f"--target={agent}", "tee", f"/proc/{pid}/autogroup"]
    done = subprocess.run(
        words, input=_LOWEST, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False
    )
    return done.returncode == 0
