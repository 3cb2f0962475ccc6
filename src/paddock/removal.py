"""Removes a directory whose contents a stranger chose: of any depth, with inaccessible directories and any number of
names.

``shutil.rmtree`` recurses, holding a descriptor per level, so it fails on some thousand nested directories. Here each
directory is moved to a flat directory before it is emptied, so no path gets long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from paddock import errors

log = structlog.get_logger(__name__)

_NAMES_PER_BATCH = 4096
_OPEN_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CleanupTasks:
    """What no caller waits for, such as removing a deleted sandbox's files. Finished before the provider closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def remove(self, folder: Path) -> None:
        self.add(asyncio.to_thread(remove, folder))

    async def finish(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("files of a deleted sandbox stay until the next start", problem=str(error))


def remove(folder: Path) -> None:
    """No process may use the directory. Can be repeated after a crash; does nothing if it does not exist."""
    flat = folder / f"removing-{secrets.token_hex(16)}"
    try:
        with _opened(folder) as top:
            _remove_files(
                top
            )  # on a full disk there is no room for the flat directory until the sandbox's image is removed
            os.mkdir(flat.name, stat.S_IRWXU, dir_fd=top)
            with _opened(flat.name, top) as into:
                _remove_all(_clear(top, into, but=flat.name), into)
            os.rmdir(flat.name, dir_fd=top)
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.ProviderUnavailable(f"Files of a deleted sandbox could not be removed: {error}") from error


def _remove_files(place: int) -> None:
    """Remove files directly in the directory, of which there are few."""
    with os.scandir(place) as entries:
        files = [entry.name for entry in islice(entries, _NAMES_PER_BATCH) if not entry.is_dir(follow_symlinks=False)]
    for name in files:
        os.unlink(name, dir_fd=place)


def _remove_all(names: list[str], flat: int) -> None:
    """Remove directories in the flat one. Their names are kept in memory: a directory that had many names stays slow to
    list."""
    while names:
        name = names.pop()
        with _opened(name, flat) as place:
            names += _clear(place, flat)
        os.rmdir(name, dir_fd=flat)


def _clear(place: int, flat: int, but: str = "") -> list[str]:
    """Remove the files in a directory, and move its subdirectories to the flat directory. Returns their names there."""
    moved: list[str] = []
    while found := _names(place, but):
        for name, is_directory in found:
            if is_directory:
                moved.append(secrets.token_hex(16))
                with _opened(name, place):  # a directory without write permission cannot be moved
                    os.rename(name, moved[-1], src_dir_fd=place, dst_dir_fd=flat)
            else:
                os.unlink(name, dir_fd=place)
    return moved


def _names(place: int, but: str) -> list[tuple[str, bool]]:
    """Some of the names in a directory, and whether each is a directory."""
    with os.scandir(place) as entries:
        some = islice((entry for entry in entries if entry.name != but), _NAMES_PER_BATCH)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]


@contextlib.contextmanager
def _opened(path: Path | str, place: int | None = None) -> Iterator[int]:
    """Open a directory and make it accessible: users of the sandbox, and overlayfs, may have removed all
    permissions."""
    named = os.open(path, _OPEN_FLAGS, dir_fd=place)
    try:
        if stat.S_IMODE(os.fstat(named).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{named}", stat.S_IRWXU)  # noqa: PTH101 - of the descriptor, whatever its name is
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=named)
    finally:
        os.close(named)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
