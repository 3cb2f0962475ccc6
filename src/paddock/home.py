"""The directory that a server keeps its state in, and the record there of where it listens.

Clients on the same machine read the record, so it must never name a server that has gone: somebody else may listen at
its address by now, and would be sent the key. The server holds a lock on the file for as long as it lives; the kernel
drops it however the server ends, and a record without a lock does not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on this system, where no server runs either
    fcntl = None  # type: ignore[assignment]

RECORD = "server.json"
_MAX_RECORD = 4096


def default_home() -> Path:
    """``PADDOCK_HOME``, else ``paddock`` in the user's XDG data directory."""
    if home := os.environ.get("PADDOCK_HOME"):
        return Path(home).expanduser()
    return unset_home()


def unset_home() -> Path:
    """Where it is if ``PADDOCK_HOME`` is not set, as in a new terminal."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "paddock"


@dataclass(frozen=True, slots=True)
class ServerRecord:
    url: str
    pid: int


class PublishedRecord:
    """Held by the server that wrote it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def publish(cls, home: Path, url: str) -> PublishedRecord:
        """Written and locked under another name first: nobody sees a part of it, or one without its lock."""
        path, temporary = home / RECORD, home / f"{RECORD}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, json.dumps({"url": url, "pid": os.getpid()}).encode() + b"\n")
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def remove(self) -> None:
        """Unless another server has put its own in the same place."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                self._path.unlink()
        os.close(self._descriptor)


def running_server(home: Path) -> ServerRecord | None:
    """The server that lives in this directory on this machine; None where there is none, or nobody may know."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(home / RECORD, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if not _locked(descriptor):
            return None
        document = json.loads(os.read(descriptor, _MAX_RECORD))
        return ServerRecord(str(document["url"]), int(document["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
