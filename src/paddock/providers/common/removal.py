"""Removes a folder whose contents a sandbox chose: of any depth, with shut directories, with any number of names.

``shutil.rmtree`` calls itself for each level and holds a descriptor of it, so some thousand nested directories would
never be removed. Here each directory is moved out of the one around it before its turn comes: no path is long.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from paddock import errors

_NAMES_AT_ONCE = 4096
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> None:
    """Nothing may run in it any more. To be repeated after a crash; does nothing where there is nothing."""
    heap = folder / f"removing-{secrets.token_hex(16)}"
    try:
        with _opened(folder) as top:
            _remove_files(top)  # a disk that is full has no room for the heap before the sandbox's image is gone
            os.mkdir(heap.name, stat.S_IRWXU, dir_fd=top)
            with _opened(heap.name, top) as into:
                _remove_all(_clear(top, into, but=heap.name), into)
            os.rmdir(heap.name, dir_fd=top)
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.ProviderUnavailable(f"Files of a deleted sandbox could not be removed: {error}") from error


def _remove_files(place: int) -> None:
    """Those right in it, of which there are few."""
    with os.scandir(place) as entries:
        files = [entry.name for entry in islice(entries, _NAMES_AT_ONCE) if not entry.is_dir(follow_symlinks=False)]
    for name in files:
        os.unlink(name, dir_fd=place)


def _remove_all(names: list[str], heap: int) -> None:
    """Directories in the heap. Remembered, not listed again: a directory that had many names stays slow to list."""
    while names:
        name = names.pop()
        with _opened(name, heap) as place:
            names += _clear(place, heap)
        os.rmdir(name, dir_fd=heap)


def _clear(place: int, heap: int, but: str = "") -> list[str]:
    """Remove what is in a directory, and move the directories in it to the heap. Answers their names there."""
    moved: list[str] = []
    while found := _names(place, but):
        for name, is_directory in found:
            if is_directory:
                moved.append(secrets.token_hex(16))
                with _opened(name, place):  # one that may not be written cannot be moved
                    os.rename(name, moved[-1], src_dir_fd=place, dst_dir_fd=heap)
            else:
                os.unlink(name, dir_fd=place)
    return moved


def _names(place: int, but: str) -> list[tuple[str, bool]]:
    """Some of the names in a directory, and which of them are directories."""
    with os.scandir(place) as entries:
        some = islice((entry for entry in entries if entry.name != but), _NAMES_AT_ONCE)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]


@contextlib.contextmanager
def _opened(path: Path | str, place: int | None = None) -> Iterator[int]:
    """A directory, for reading and writing: users of the sandbox may have shut it, and so does overlayfs."""
    named = os.open(path, _PLACE, dir_fd=place)
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
