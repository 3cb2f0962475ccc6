"""Writes the entries of a layer's tar as a directory that overlayfs understands.

It runs inside the confined process and still trusts no name: every path is walked from the top, link by link, with
``..`` and absolute targets meaning what they would mean if the layer were ``/``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from dataclasses import dataclass, field
from typing import BinaryIO

from paddock.images.layer_entry import MAX_DEPTH, Refused, clean_path, nanoseconds, owner, shown, xattrs

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_RESERVED = ".wh..wh."
_MAX_LINKS = 40
_CHUNK = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Quota:
    """What a layer may still take, and what is to stay free on the disk."""

    bytes: int
    inodes: int
    free_bytes: int
    place: int
    _unchecked: int = 0

    def take(self, size: int, inodes: int = 0) -> None:
        self.bytes -= size
        self.inodes -= inodes
        if self.bytes < 0:
            raise Refused("it unpacks to more bytes than a layer may have")
        if self.inodes < 0:
            raise Refused("it has more files than a layer may have")
        self._unchecked += size + inodes * 4096
        if self._unchecked >= 64 << 20:
            self._unchecked = 0
            self.check_disk()

    def check_disk(self) -> None:
        status = os.fstatvfs(self.place)
        if status.f_bavail * status.f_frsize < self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(slots=True)
class LayerSummary:
    """What whoever stacks the layer has to know of it. Paths are relative."""

    opaque: list[str] = field(default_factory=list)
    implicit: list[str] = field(default_factory=list)
    """Directories that the tar has no entry of: those of lower layers say what they are like."""
    skipped_devices: int = 0
    size: int = 0
    inodes: int = 0


class LayerWriter:
    def __init__(self, root: int, quota: Quota, *, owners: bool) -> None:
        """``owners``: whether ids and capabilities of files can be set."""
        self._root = root
        self._quota = quota
        self._owners = owners
        self._implicit: dict[str, None] = {}
        self._opaque: dict[str, None] = {}
        self._whiteouts: set[str] = set()
        self._times: dict[str, int] = {}
        self._parent: tuple[str, int] = ("", root)
        self.summary = LayerSummary()

    def add(self, entry: tarfile.TarInfo, content: BinaryIO | None) -> None:
        path = clean_path(entry.name)
        if not path:
            if entry.isdir():
                self._attributes(self._root, entry)
                self._times[""] = nanoseconds(entry.mtime)
            return
        folder, name = self._place(path)
        where = f"{folder}/{name}" if folder else name
        if name.startswith(WHITEOUT):
            self._white_out(folder, name)
            return
        if entry.ischr() or entry.isblk():
            self.summary.skipped_devices += 1
            return
        parent = self._open(folder)
        if not entry.isdir():
            self._clear(parent, name, where)
            self._whiteouts.discard(where)
        self._quota.take(0, 1)
        if entry.isdir():
            self._directory(parent, name, where, entry)
        elif entry.issym():
            self._symlink(parent, name, entry)
        elif entry.islnk():
            self._hard_link(parent, name, entry)
        elif entry.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            self._named_attributes(parent, name, entry)
        elif content is not None:
            self._file(parent, name, entry, content)
        else:
            raise Refused(f"{shown(entry.name)} is of an unknown type")
        self.summary.inodes += 1

    def finish(self) -> LayerSummary:
        self._close_parent()
        for path in sorted(self._times, key=len, reverse=True):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                place = self._walk(path)
                try:
                    os.utime(place, ns=(self._times[path], self._times[path]))
                finally:
                    self._release(place)
        self.summary.opaque = list(self._opaque)
        self.summary.implicit = list(self._implicit)
        return self.summary

    # Entries

    def _directory(self, parent: int, name: str, where: str, entry: tarfile.TarInfo) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._replace_by_directory(parent, name, where)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        self._implicit.pop(where, None)
        place = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            self._attributes(place, entry)
        finally:
            os.close(place)
        self._times[where] = nanoseconds(entry.mtime)

    def _file(self, parent: int, name: str, entry: tarfile.TarInfo, content: BinaryIO) -> None:
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            left = entry.size
            while left:
                chunk = content.read(min(left, _CHUNK))
                if not chunk:
                    raise Refused(f"it ends in the middle of {shown(entry.name)}")
                self._quota.take(len(chunk))
                left -= len(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(file, rest) :]
            self.summary.size += entry.size
            self._attributes(file, entry)
            when = nanoseconds(entry.mtime)
            os.utime(file, ns=(when, when))
        finally:
            os.close(file)

    def _symlink(self, parent: int, name: str, entry: tarfile.TarInfo) -> None:
        if not entry.linkname:
            raise Refused(f"{shown(entry.name)} is a link to nothing")
        os.symlink(entry.linkname, name, dir_fd=parent)
        self._named_attributes(parent, name, entry)

    def _hard_link(self, parent: int, name: str, entry: tarfile.TarInfo) -> None:
        target = clean_path(entry.linkname)
        if not target:
            raise Refused(f"{shown(entry.name)} is a link to nothing")
        folder, base = self._place(target, make=False)
        where = f"{folder}/{base}" if folder else base
        try:
            if where in self._whiteouts:
                raise FileNotFoundError(errno.ENOENT, target)
            source = self._walk(folder)
            try:
                os.link(base, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
            finally:
                self._release(source)
        except (FileNotFoundError, NotADirectoryError):
            raise Refused(
                f"{shown(entry.name)} is a hard link to {shown(entry.linkname)}, which is not in the same layer"
            ) from None
        except PermissionError:
            raise Refused(f"{shown(entry.name)} is a hard link to {shown(entry.linkname)}, a directory") from None

    def _white_out(self, folder: str, name: str) -> None:
        if name == OPAQUE:
            self._opaque[folder] = None
            return
        if name.startswith(_RESERVED):
            return  # of AUFS, for itself
        hidden = name.removeprefix(WHITEOUT)
        if hidden in ("", ".", ".."):
            raise Refused(f"{shown(name)} hides nothing")
        where = f"{folder}/{hidden}" if folder else hidden
        parent = self._open(folder)
        try:
            found = os.stat(hidden, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            self._quota.take(0, 1)
            os.mknod(hidden, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)
            self._whiteouts.add(where)
            return
        if stat.S_ISDIR(found.st_mode):  # this layer's own stays, what is below goes
            self._opaque[where] = None

    # Attributes

    def _attributes(self, place: int, entry: tarfile.TarInfo) -> None:
        if self._owners:
            os.fchown(place, *owner(entry))
        os.fchmod(place, entry.mode & 0o7777)
        for name, value in xattrs(entry, self._owners):
            try:
                os.setxattr(place, name, value)
            except OSError as error:
                raise Refused(
                    f"the extended attribute {shown(name)} of {shown(entry.name)} cannot be kept: {error.strerror}"
                ) from None

    def _named_attributes(self, parent: int, name: str, entry: tarfile.TarInfo) -> None:
        """Of what cannot be opened."""
        if self._owners:
            user, group = owner(entry)
            os.chown(name, user, group, dir_fd=parent, follow_symlinks=False)
        if not entry.issym():
            os.chmod(name, entry.mode & 0o7777, dir_fd=parent)
        when = nanoseconds(entry.mtime)
        os.utime(name, ns=(when, when), dir_fd=parent, follow_symlinks=False)

    # Paths

    def _place(self, path: str, *, make: bool = True) -> tuple[str, str]:
        """The real directory that it is in, relative to the layer, and its name there. Links in between are followed
        as if the layer were ``/``; ``make``: what is missing is made."""
        folder, _, name = path.rpartition("/")
        if folder == self._parent[0] or not folder:
            return folder, name
        return self._resolved(folder, make), name

    def _resolved(self, folder: str, make: bool) -> str:
        ahead = list(reversed(folder.split("/")))
        real: list[str] = []
        links = 0
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del real[-1:]
                continue
            kind, target = self._look("/".join(real), part)
            if kind == "link":
                links += 1
                if links > _MAX_LINKS:
                    raise Refused(f"{shown(folder)} has too many symbolic links in it")
                if target.startswith("/"):
                    real.clear()
                ahead.extend(reversed(target.split("/")))
            else:
                real.append(part)
                if kind != "directory" and make:
                    self._make_implicit("/".join(real), there=kind == "other")
            if len(real) > MAX_DEPTH:
                raise Refused(f"{shown(folder)} is too deep")
        return "/".join(real)

    def _look(self, folder: str, name: str) -> tuple[str, str]:
        try:
            place = self._walk(folder)
        except (FileNotFoundError, NotADirectoryError):
            return "nothing", ""
        try:
            mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return "link", os.readlink(name, dir_fd=place)
            return ("directory" if stat.S_ISDIR(mode) else "other"), ""
        except FileNotFoundError:
            return "nothing", ""
        finally:
            self._release(place)

    def _make_implicit(self, where: str, *, there: bool) -> None:
        folder, _, name = where.rpartition("/")
        parent = self._walk(folder)
        try:
            if there:
                self._replace_by_directory(parent, name, where)
            self._quota.take(0, 1)
            os.mkdir(name, 0o755, dir_fd=parent)
        finally:
            self._release(parent)
        self._implicit[where] = None
        self._times.pop(where, None)

    def _replace_by_directory(self, parent: int, name: str, where: str) -> None:
        """A whiteout or a file has hidden the directory of lower layers, which must not shine through again."""
        self._clear(parent, name, where)
        self._whiteouts.discard(where)
        self._opaque[where] = None

    def _open(self, folder: str) -> int:
        """The directory, kept open for the entries that follow in it."""
        if self._parent[0] != folder:
            self._close_parent()
            self._parent = (folder, self._walk(folder))
        return self._parent[1]

    def _close_parent(self) -> None:
        self._release(self._parent[1])
        self._parent = ("", self._root)

    def _walk(self, folder: str) -> int:
        """Open a real directory of the layer; no part of it may be a link."""
        place = self._root
        for part in folder.split("/") if folder else ():
            try:
                below = os.open(part, _DIRECTORY, dir_fd=place)
            finally:
                self._release(place)
            place = below
        return place

    def _release(self, place: int) -> None:
        if place != self._root:
            os.close(place)

    def _clear(self, parent: int, name: str, where: str) -> None:
        """Remove what an earlier entry of the same tar has put there."""
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            _remove_tree(parent, name)
            below = f"{where}/"
            for known in (self._implicit, self._opaque):
                for path in [path for path in known if path == where or path.startswith(below)]:
                    del known[path]
            self._times = {path: when for path, when in self._times.items() if not f"{path}/".startswith(below)}
            self._whiteouts = {path for path in self._whiteouts if not path.startswith(below)}
        else:
            os.unlink(name, dir_fd=parent)


def _remove_tree(parent: int, name: str) -> None:
    place = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        with os.scandir(place) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for below, is_directory in found:
            if is_directory:
                _remove_tree(place, below)
            else:
                os.unlink(below, dir_fd=place)
    finally:
        os.close(place)
    os.rmdir(name, dir_fd=parent)
