"""Folders made in advance, waiting on a shelf until a create takes one.

A folder is taken by renaming it away: the file system lets one taker win, whichever server it belongs to. Folders under
construction are locked by whoever builds them, and the kernel drops the lock with its process, so that what a crash
left behind can be told from what is being made right now.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paddock.providers.base import Shape
from paddock.providers.fake.folder import Folder, remove_tree
from paddock.providers.fake.view import make_root

_CREATING = ".creating-"
_SHELF = ".warm"
_NAME = re.compile(r"(?P<template>[A-Za-z0-9._-]+)~(?P<disk>[0-9]+)~[0-9a-f]+")


class Shelf:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / _SHELF

    def clean_up(self) -> None:
        """Remove what a crash left half-made."""
        for path in self._root.glob(f"{_CREATING}*"):
            with _locked(path) as mine:
                if mine:
                    remove_tree(path)

    @contextmanager
    def draft(self, name: str, shape: Shape | None = None) -> Iterator[Folder]:
        """A folder to be finished and renamed away: one of this shape from the shelf, or a new one.

        Where it is still there at the end it is thrown away.
        """
        while True:
            path = self._root / f"{_CREATING}{name}-{secrets.token_hex(4)}"
            taken = shape is not None and self._take(shape, path)
            if not taken:
                os.mkdir(path, 0o700)  # noqa: PTH102
            with _locked(path) as mine:
                if not mine:
                    continue  # a server that starts this very moment took it for a leftover
                if not taken:
                    make_root(path / "root")
                try:
                    yield Folder(path)
                finally:
                    remove_tree(path)
                return

    def put(self, shape: Shape) -> None:
        self._path.mkdir(mode=0o700, exist_ok=True)
        with self.draft("warm") as draft:
            draft.path.rename(self._path / f"{shape.template_id}~{shape.disk_mb}~{secrets.token_hex(8)}")

    def stock(self) -> Mapping[Shape, int]:
        return Counter(shape for _, shape in self._entries())

    def throw_away(self, shape: Shape, count: int) -> None:
        for _ in range(count):
            path = self._root / f"{_CREATING}cool-{secrets.token_hex(4)}"
            if not self._take(shape, path):
                return
            remove_tree(path)

    def _take(self, shape: Shape, destination: Path) -> bool:
        for path, found in self._entries():
            if found == shape:
                try:
                    path.rename(destination)
                except FileNotFoundError:
                    continue  # another was quicker
                return True
        return False

    def _entries(self) -> Iterator[tuple[Path, Shape]]:
        try:
            names = os.listdir(self._path)  # noqa: PTH208
        except FileNotFoundError:  # nothing was ever put there
            return
        for name in names:
            if found := _NAME.fullmatch(name):
                yield self._path / name, Shape(found["template"], int(found["disk"]))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """False where somebody else holds it, or has taken it away."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
