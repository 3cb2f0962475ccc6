"""Scheduler autogroups: lowers the weight of a session's group, so that all its processes yield.

In an autogroup, the nice value of a process counts only against processes of the same session. An unprivileged user may
lower ten groups a second; a refused request is repeated at the next check.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

_SYSCTL = Path("/proc/sys/kernel/sched_autogroup_enabled")
_LOWEST_PRIORITY = b"19"
_TIMEOUT_S = 2.0


class Autogroups:
    def __init__(self) -> None:
        self._lowered: set[int] = set()

    def forget_all_but(self, sessions: Collection[int]) -> None:
        """Forget sessions that have ended, since their numbers may be reused."""
        self._lowered.intersection_update(sessions)

    def lower(self, session: int, pid: int, agent: int) -> None:
        """Through any process of the session. ``agent``: a process in the sandbox's user namespace."""
        if session not in self._lowered and _enabled() and _lower(pid, agent):
            self._lowered.add(session)


def _enabled() -> bool:
    try:
        return _SYSCTL.read_bytes().strip() == b"1"
    except FileNotFoundError:
        return False


def _lower(pid: int, agent: int) -> bool:
    """False if another attempt may succeed."""
    try:
        descriptor = os.open(f"/proc/{pid}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except PermissionError:
        return _lower_from_inside(pid, agent)
    except OSError:
        return False
    try:
        os.write(descriptor, _LOWEST_PRIORITY)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.ESRCH)
    finally:
        os.close(descriptor)
    return True


def _lower_from_inside(pid: int, agent: int) -> bool:
    """The process has another user id: act as root of its user namespace, which this process's user owns."""
    if (nsenter := shutil.which("nsenter")) is None:
        return True
    words = [nsenter, "--user", f"--target={agent}", "tee", f"/proc/{pid}/autogroup"]
    done = subprocess.run(
        words,
        input=_LOWEST_PRIORITY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0
