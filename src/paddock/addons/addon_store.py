"""The installed add-ons of a server, on its disk. Installations are atomic: prepared in a temporary directory and
renamed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.addons import CURRENT, NAMES
from paddock.addons.cache import Cache
from paddock.addons.progress import Hear, ProgressReporter
from paddock.addons.recipe import BuiltAddon, Recipe

_NOTE = "addon.json"


@dataclass(frozen=True, slots=True)
class InstalledAddon:
    name: str
    version: str
    parts: Mapping[str, str]
    size: int
    """Bytes on disk."""


def lay_out(root: Path) -> None:
    """Create the directory that every sandbox mounts, readable by every host user."""
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    root.chmod(0o755)


class AddonStore:
    def __init__(self, root: Path, cache: Cache | None = None) -> None:
        self._root = root
        self._cache = cache

    def installed(self, name: str) -> InstalledAddon | None:
        current = self._root / known(name) / CURRENT
        try:
            note: Any = json.loads((current / _NOTE).read_text())
            return InstalledAddon(name, str(note["version"]), dict(note["parts"]), int(note["size"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def install(self, recipe: Recipe, hear: Hear, *, fresh: bool = False) -> InstalledAddon:
        """Install an add-on or replace the installed version, which is kept for sandboxes that are using it.

        ``fresh``: build it again even if the cache has a package of this version.
        """
        say = ProgressReporter(recipe.steps, hear)
        with self._locked() as root:
            addon_store = root / known(recipe.name)
            addon_store.mkdir(mode=0o755, exist_ok=True)
            draft = addon_store / f".{secrets.token_hex(4)}"
            draft.mkdir(mode=0o755)
            try:
                with say.measuring(draft):
                    made = self._made(recipe, draft, say, fresh)
                size = _make_readable(draft)
                note = {"version": made.version, "parts": dict(made.parts), "size": size}
                (draft / _NOTE).write_text(json.dumps(note, indent=2) + "\n")
                (draft / _NOTE).chmod(0o644)
                _publish(draft, addon_store / made.version)
            finally:
                _discard(draft)
            before = _current(addon_store)
            _point(addon_store, made.version)
            for old in addon_store.iterdir():
                if old.name not in (CURRENT, made.version, before):
                    _discard(old)
        return InstalledAddon(recipe.name, made.version, made.parts, size)

    def _made(self, recipe: Recipe, draft: Path, say: ProgressReporter, fresh: bool) -> BuiltAddon:
        key = recipe.cache_key
        if self._cache is None or key is None:
            return recipe.make(draft, say)
        if not fresh:
            say("unpacking the copy of an earlier installation")
            if (found := self._cache.unpack(recipe.name, key, draft)) is not None:
                return found
            for left in draft.iterdir():
                _discard(left)
        made = recipe.make(draft, say)
        say("packing a copy for the next installation")
        self._cache.pack(recipe.name, key, draft, made)
        return made

    def remove(self, name: str) -> None:
        with self._locked() as root:
            addon_store = root / known(name)
            if not addon_store.is_dir() or self.installed(name) is None:
                raise errors.AddonNotFound(f"The add-on {name!r} is not installed.")
            _discard(addon_store)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        """Hold the lock that serializes changes of the store."""
        lay_out(self._root)
        lock = os.open(self._root / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.Conflict(
                    "Another `paddock addon` is running on this server. Wait until it has ended."
                ) from None
            yield self._root
        finally:
            os.close(lock)


def known(name: str) -> str:
    if name not in NAMES:
        raise errors.AddonNotFound(f"There is no add-on {name[:80]!r}. There are: {', '.join(NAMES)}.")
    return name


def _publish(draft: Path, target: Path) -> None:
    """Rename the new version to its final name, replacing an older build of the same version."""
    old = target.with_name(f".{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    draft.rename(target)
    _discard(old)


def _current(addon_store: Path) -> str | None:
    try:
        return (addon_store / CURRENT).readlink().name
    except OSError:
        return None


def _point(addon_store: Path, version: str) -> None:
    link = addon_store / f".{secrets.token_hex(4)}"
    link.symlink_to(version)
    link.rename(addon_store / CURRENT)


def _discard(path: Path) -> None:
    """Delete a version. It is renamed first, so that no sandbox sees it partly deleted."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        gone = path.with_name(f".{secrets.token_hex(4)}")
        path.rename(gone)
        shutil.rmtree(gone)


def _make_readable(folder: Path) -> int:
    """Make all files readable by everybody and remove setuid bits. Returns the size in bytes."""
    size = 0
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                continue
            size += status.st_blocks * 512
            mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o444
            runs = stat.S_ISDIR(status.st_mode) or bool(mode & 0o100)
            path.chmod((mode | (0o111 if runs else 0)) & ~0o022)
    folder.chmod(0o755)
    return size
