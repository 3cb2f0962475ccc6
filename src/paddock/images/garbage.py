"""Removes what no name, no pull in progress and no sandbox needs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.images.store import IN_USE, ImageStore, in_use, try_lock
from paddock.removal import remove

_OLD_DRAFT_SECONDS = 7 * 24 * 3600.0
_FOLDERS = ("drafts", "warm", "sandboxes", "trash")
"""Of the local provider, in the order in which a sandbox moves through them: one that moves meanwhile is still seen."""


@dataclass(frozen=True, slots=True)
class Removed:
    blobs: int = 0
    layers: int = 0
    bytes: int = 0


def used_by_sandboxes(local: Path) -> dict[str, int]:
    """The digests of the images that sandboxes of this server stand on, and how many each."""
    found: dict[str, int] = {}
    for folder in _FOLDERS:
        for path in (local / folder).glob(f"*/{IN_USE}"):
            if (note := in_use(path.parent)) is None:  # it has moved on, or is gone
                continue
            found[note.digest] = found.get(note.digest, 0) + 1
    return found


def collect(store: ImageStore, local: Path, *, drafts_older_than: float = _OLD_DRAFT_SECONDS) -> Removed:
    """What cannot be read is an error, and then nothing is removed. Blocking."""
    size = blobs = layers = 0
    with store.locked():
        needed = store.leased()
        digests = {digest for _, digest, _ in store.names()} | used_by_sandboxes(local).keys()
        for digest in digests:
            needed.update(_parts(store, digest))
        for digest, path in list(store.all_blobs()):
            if digest not in needed:
                size += path.stat().st_blocks * 512
                blobs += 1
                path.unlink()
        for digest, path in list(store.all_layers()):
            if digest not in needed:
                layers += 1
                layer = store.layer(digest)
                size += layer.size if layer else 0
                path.rename(store.drafts / f"gone-{path.name}")
        for digest, path in list(store.own_layers()):
            if digest not in needed and not path.name.startswith("."):
                path.rename(store.drafts / f"gone-{path.name}")
        trash = list(_abandoned(store, drafts_older_than))
    for path, lock in trash:
        try:
            remove(path)
        finally:
            os.close(lock)
    return Removed(blobs, layers, size)


def _parts(store: ImageStore, digest: str) -> Iterable[str]:
    """Of an image that is only half there, whatever is known of it."""
    yield digest
    try:
        image = store.image(digest)
    except errors.ImageNotFound:
        return
    yield from (part.digest for part in image.manifest.parts)
    yield from image.config.diff_ids


def _abandoned(store: ImageStore, older_than: float) -> Iterator[tuple[Path, int]]:
    """Directories that nobody works at, each with the lock that keeps others from removing it, too. Files are removed
    here; downloads stay for a while, because the next pull continues them."""
    for path in store.drafts.iterdir():
        if (descriptor := try_lock(path)) is None:
            continue
        if path.is_dir():
            yield path, descriptor
            continue
        os.close(descriptor)
        if path.suffix != ".part" or time.time() - path.stat().st_mtime > older_than:
            path.unlink(missing_ok=True)
