"""The socket that the agent in a guest listens on, in a folder that the guest is given: so nothing there is trusted."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import time
from pathlib import Path

from paddock import errors
from paddock.providers.local.gvisor.bundle import FILTER, FOLDER, SOCKET, SOCKET_FOLDER, TOKEN

_PAUSE = 0.005
_LISTEN_SECONDS = 5.0
"""From the moment that there is a socket to that in which somebody listens on it."""
_OPEN_MODE, _CLOSED_MODE = 0o700, 0o711


def make(folder: Path, owner: int, filters: bytes) -> None:
    """For one start: it is the sandbox's root's until the agent has made its socket there."""
    place, token_text = folder / FOLDER, secrets.token_hex(32).encode()
    shared = place / SOCKET_FOLDER
    shared.mkdir(mode=_OPEN_MODE, parents=True, exist_ok=True)
    _write(place / TOKEN, token_text, 0)
    _write(shared / TOKEN, token_text, owner)
    _write(shared / FILTER, filters, owner)
    (shared / SOCKET).unlink(missing_ok=True)
    shared.chmod(_OPEN_MODE)
    os.chown(shared, owner, owner)


def token(folder: Path) -> str:
    """Our own copy: the other one is the guest's to change."""
    try:
        return (folder / FOLDER / TOKEN).read_text()
    except OSError as error:
        raise errors.ProviderUnavailable(
            f"The token of the sandbox's agent cannot be read: {error.strerror}."
        ) from error


async def connect(folder: Path, patience: float = 0.0) -> socket.socket:
    """``patience``: seconds that a guest may take which is still starting, and has no socket yet."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return _connect(folder)
        except OSError as error:
            now = time.monotonic()
            if isinstance(error, ConnectionRefusedError):  # perhaps in the moment before it listens
                deadline = min(deadline, now + _LISTEN_SECONDS)
            elif not isinstance(error, FileNotFoundError):
                deadline = now
            if now >= deadline:
                raise errors.ProviderUnavailable(f"The sandbox's agent cannot be reached: {error.strerror}.") from error
        await asyncio.sleep(_PAUSE)


def _connect(folder: Path) -> socket.socket:
    shared = os.open(folder / FOLDER / SOCKET_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # By the very file that was looked at: a link there could lead to a socket of the host's.
        found = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=shared)
        try:
            if not stat.S_ISSOCK(os.fstat(found).st_mode):
                raise errors.ProviderUnavailable("The socket of the sandbox's agent is not one.")
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                made.setblocking(False)
                made.connect(f"/proc/self/fd/{found}")
            except OSError:
                made.close()
                raise
        finally:
            os.close(found)
        _close_to_guest(shared)
    finally:
        os.close(shared)
    return made


def _close_to_guest(shared: int) -> None:
    """Once the agent listens, no user inside may write to the folder: not even its root can make a socket there."""
    if os.fstat(shared).st_uid != 0:
        os.fchown(shared, 0, 0)
        os.fchmod(shared, _CLOSED_MODE)


def _write(path: Path, content: bytes, owner: int) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchown(descriptor, owner, owner)
