"""The server process of a home on this machine: found, and asked to stop."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Self

from paddock.errors import Unavailable
from paddock.home import RECORD, running_server

_POLL_INTERVAL_S = 1.0


class ServerProcess:
    """Identified by a pidfd, so that a process with a reused pid is never signalled."""

    def __init__(self, pid: int, url: str, pidfd: int) -> None:
        self.pid = pid
        self.url = url
        self._pidfd = pidfd

    @classmethod
    def find(cls, home: Path) -> Self | None:
        """None if no server runs on this home."""
        found = running_server(home)
        if found is None:
            return None
        try:
            pidfd = os.pidfd_open(found.pid)
        except OSError:  # its record is locked, so it is alive: in another pid namespace
            raise _elsewhere(home, found.pid) from None
        if not _holds(found.pid, home / RECORD):
            os.close(pidfd)
            if running_server(home) is None:
                return None  # it ended meanwhile
            raise _elsewhere(home, found.pid)
        return cls(found.pid, found.url, pidfd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._pidfd)

    def stop(self, patience: float) -> bool:
        """Ask the server to stop, and wait until it has drained. False if it takes longer than ``patience`` seconds."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        except ProcessLookupError:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        deadline = time.monotonic() + patience
        while not poll.poll(_POLL_INTERVAL_S * 1000):
            if time.monotonic() > deadline:
                return False
        return True


def _holds(pid: int, path: Path) -> bool:
    """Whether the process has this file open: the server keeps its record open for its whole life."""
    try:
        wanted = path.stat()
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except PermissionError:
        raise Unavailable(f"The server (process {pid}) is another user's: stop it as that user, or as root.") from None
    except OSError:
        return False
    for name in names:
        try:
            if os.path.samestat(wanted, os.stat(f"/proc/{pid}/fd/{name}")):  # noqa: PTH116
                return True
        except OSError:
            continue
    return False


def _elsewhere(home: Path, pid: int) -> Unavailable:
    return Unavailable(
        f"A server runs on {home}, and not where processes can be seen from here (it calls itself process {pid}): in a "
        "container, perhaps. Stop it there."
    )
