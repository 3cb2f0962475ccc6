"""The files of an image as its layers make them together, seen from outside without a mount.

Links are followed as in the image, where absolute ones begin at its top. Layers never change, so a path that has been
looked at stays what it was.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.images.store import Layer

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
_MAX_LINKS = 40
_MAX_TEXT = 1 << 20


class LayerTree:
    def __init__(self, layers: Sequence[Layer]) -> None:
        """``layers``: the lowest first."""
        self._layers = layers

    def find(self, path: str) -> Path | None:
        """Where the file, or the topmost of the directories that are merged there, is on the host."""
        ahead, real = list(reversed(path.split("/"))), list[str]()
        places, links = self._tops(), 0
        while ahead:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                real = real[:-1]
                places = self._merged(real)
                continue
            below = _below(places, part)
            if not below:
                return None
            if below[0].is_symlink():
                links += 1
                if links > _MAX_LINKS:
                    return None
                target = str(below[0].readlink())
                if target.startswith("/"):
                    real, places = [], self._tops()
                ahead.extend(reversed(target.split("/")))
                continue
            real, places = [*real, part], below
        return places[0] if places else None

    def names(self, path: str) -> list[str]:
        """In a directory that is none of a link's."""
        places = self._merged(path.split("/"))
        seen = {name: None for place in places if place.is_dir() for name in sorted(os.listdir(place))}  # noqa: PTH208 - names
        return [name for name in seen if _below(places, name)]

    def text(self, path: str) -> str | None:
        """None: there is no such regular file, or it is larger than any that is read here."""
        found = self.find(path)
        if found is None or not found.is_file() or found.stat().st_size > _MAX_TEXT:
            return None
        return found.read_text(errors="replace")

    def hidden_attributes(self) -> Iterator[tuple[str, os.stat_result]]:
        """Directories that an upper layer has without saying what they are like, and what a lower one says."""
        seen = set()
        for layer in reversed(self._layers):
            for path in layer.implicit:
                if path not in seen:
                    seen.add(path)
                    if (status := self._said(path)) is not None:
                        yield path, status

    def _said(self, path: str) -> os.stat_result | None:
        """By the topmost layer that has an entry of it. None: that is what is seen, or no layer has."""
        by_root = {layer.root: layer for layer in self._layers}
        for number, place in enumerate(self._merged(path.split("/"))):
            layer = next(layer for root, layer in by_root.items() if place.is_relative_to(root))
            if path not in layer.implicit:
                return place.lstat() if number else None
        return None

    def _tops(self) -> list[Path]:
        return [layer.root for layer in reversed(self._layers)]

    def _merged(self, parts: Sequence[str]) -> list[Path]:
        places = self._tops()
        for part in parts:
            places = _below(places, part)
        return places


def _below(places: Sequence[Path], name: str) -> list[Path]:
    """What is called so in directories that are merged: one file or link, or the directories, the topmost first."""
    found: list[Path] = []
    for place in places:
        path = place / name
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISDIR(mode):
            whiteout = stat.S_ISCHR(mode)
            return found if found or whiteout else [path]
        found.append(path)
        if _is_opaque(path):
            break
    return found


def _is_opaque(path: Path) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
        except OSError:
            continue
    return False
