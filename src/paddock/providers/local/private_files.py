"""Copies of the programs and libraries that everything maps, so that sandboxes and the host do not share their locks.

The kernel keeps the mappings of a file in one tree under one lock (``i_mmap_rwsem``), whoever maps it: every ``fork``,
``exec`` and ``mmap`` takes it for each file of the process. Where a fork bomb and its neighbours map the same libc, a
neighbour waits behind hundreds of processes of the bomb, each of which must first get its turn on a processor. Stalls
of many seconds were seen, on the host too. A copy is another file with another lock.

Each sandbox has its own copy of the few files that every command needs. What is larger, or needed less often, is one
copy for all sandboxes of template ``host``: it keeps the host itself out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from paddock.providers.common.disk import share_blocks
from paddock.providers.local.made_aside import made_aside
from paddock.providers.local.template import LocalTemplate, Overlay

FOLDER = "own"
"""Of the copies, in the folder of a sandbox."""
_MAX_BYTES = 16 << 20
"""No single file is copied that is larger."""
_OF_EACH_SANDBOX = (
    "{usr,}/lib*/ld-linux*.so.*",
    "{usr,}/lib*/*/ld-linux*.so.*",
    "{usr,}/lib/ld-musl-*.so.1",
    "{usr,}/lib*/libc.so.6",
    "{usr,}/lib*/*/libc.so.6",
    "{usr,}/lib*/libtinfo.so.*",
    "{usr,}/lib*/*/libtinfo.so.*",
    "{usr,}/bin/bash",
    "{usr,}/bin/dash",
    "{usr,}/bin/busybox",
    "usr/lib/locale/C.utf8/LC_CTYPE",
)
_OF_ALL_SANDBOXES = (
    *(f"usr/lib*/*/{name}.so.*" for name in ("libm", "libz", "libexpat", "libgcc_s", "libstdc++", "libselinux")),
    *(f"usr/lib*/{name}.so.*" for name in ("libm", "libz", "libexpat", "libgcc_s", "libstdc++", "libselinux")),
    "usr/lib*/*/libpcre2-8.so.*",
    "usr/lib*/*/gconv/gconv-modules.cache",
    *(f"usr/{place}bin/python3.{digits}" for place in ("", "local/") for digits in ("[0-9]", "[0-9][0-9]")),
    "usr/local/lib/libpython3.*.so.*",
    *(f"usr/bin/{name}" for name in ("perl", "env", "true", "echo", "cat", "ls", "sleep", "date", "grep", "sed")),
    *(f"usr/bin/{name}" for name in ("mkdir", "rm", "cp", "mv", "head", "tail", "seq", "timeout", "tar", "gzip")),
)


def of_each_sandbox(top: Path) -> tuple[str, ...]:
    """Paths inside of the files in this root file system of which each sandbox is to have a copy."""
    return _found(top, _OF_EACH_SANDBOX)


def of_all_sandboxes(top: Path) -> tuple[str, ...]:
    return _found(top, _OF_ALL_SANDBOXES)


def version(top: Path, paths: Iterable[str]) -> str:
    """Another one when any of them has changed."""
    seen = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(OSError):
            status = (top / path.lstrip("/")).stat()
            seen.update(f"{path} {status.st_ino} {status.st_size} {status.st_mtime_ns}\0".encode())
    return seen.hexdigest()[:16]


def give(template: LocalTemplate, folder: Path) -> LocalTemplate:
    """The template as one sandbox sees it: with copies of its own, made anew in its folder."""
    if not template.own_files or template.top is None:
        return template
    shutil.rmtree(folder / FOLDER, ignore_errors=True)  # of an earlier start; the template may have changed since
    _copy(template.top, folder / FOLDER, template.own_files)
    return above(template, folder / FOLDER, template.own_files)


def make(root: Path, top: Path, paths: Iterable[str]) -> Path:
    """The copies that all sandboxes share."""
    with made_aside(root) as draft:
        _copy(top, draft, paths)
    return root


def above(template: LocalTemplate, copies: Path, paths: Iterable[str]) -> LocalTemplate:
    """With these copies in place of the originals: as a layer where there is an overlay, else mounted one by one."""
    overlays = list(template.overlays)
    mounted = list(template.copies)
    for path in paths:
        index = _overlay_of(template, path)
        if index is None:
            mounted.append((copies / path.lstrip("/"), path))
            continue
        layer = copies / overlays[index].target.lstrip("/")
        if layer not in overlays[index].lowers:
            overlays[index] = _with_layer(overlays[index], layer)
    return replace(template, overlays=tuple(overlays), copies=tuple(mounted))


def _with_layer(overlay: Overlay, layer: Path) -> Overlay:
    """Just above the original: what hides or replaces files of the original still does."""
    return replace(overlay, lowers=(*overlay.lowers[:-1], layer, overlay.lowers[-1]))


def _overlay_of(template: LocalTemplate, path: str) -> int | None:
    """Which overlay shows this path; None where a directory of the host is bound over it."""
    places: list[tuple[str, int | None]] = [(one.target, number) for number, one in enumerate(template.overlays)]
    places += [(bound, None) for bound in template.binds]
    around = [place for place in places if Path(path).is_relative_to(place[0])]
    return max(around, key=lambda place: len(place[0]))[1]


def _found(top: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Regular files, each once, in a fixed order. A link counts for the file beside it that it names."""
    found: dict[str, None] = {}
    for pattern in patterns:
        ways = [pattern.replace("{usr,}", "usr"), pattern.replace("{usr,}/", "")] if "{" in pattern else [pattern]
        for path in (path for way in ways for path in sorted(top.glob(way))):
            name = path.readlink().name if path.is_symlink() and path.readlink().parent == Path() else path.name
            real = path.parent.resolve() / name
            if real.is_relative_to(top.resolve()) and _worth_a_copy(real):
                found["/" + str(real.relative_to(top.resolve()))] = None
    return tuple(found)


def _worth_a_copy(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    readable = status.st_mode & stat.S_IROTH and not status.st_mode & (stat.S_ISUID | stat.S_ISGID)
    return bool(stat.S_ISREG(status.st_mode) and readable and status.st_size <= _MAX_BYTES)


def _copy(top: Path, target: Path, paths: Iterable[str]) -> None:
    folders: set[Path] = set()
    for path in paths:
        source, copy = top / path.lstrip("/"), target / path.lstrip("/")
        copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _copy_file(source, copy)
        folders.update(parent for parent in Path(path).parents if parent != Path("/"))
    for folder in sorted(folders, reverse=True):  # one that is in several layers has the attributes of the highest
        shutil.copystat(top / str(folder).lstrip("/"), target / str(folder).lstrip("/"))


def _copy_file(source: Path, target: Path) -> None:
    """By one read and one write, which is the quickest for files of this size where blocks cannot be shared."""
    with source.open("rb", buffering=0) as read:
        status = os.fstat(read.fileno())
        with target.open("xb", buffering=0) as write:
            if not share_blocks(read.fileno(), write.fileno()):
                left = memoryview(read.readall())
                while left:
                    left = left[write.write(left) :]
            os.fchmod(write.fileno(), stat.S_IMODE(status.st_mode))
            os.utime(write.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
