"""The directories of one installation's sandboxes, and the steps from draft to sandbox to trash.

A sandbox is one directory and each step is one rename, so a crash at any point leaves it in one place or the other:
``drafts/`` (being created), ``warm/`` (created in advance), ``sandboxes/`` (assigned), ``trash/`` (being removed).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from paddock import errors
from paddock.providers.common.record import SandboxRecord

log = structlog.get_logger(__name__)

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_ABANDONED_AFTER_S = 300.0
_TRASH_SEPARATOR = "."
"""Separates the name of a directory in the trash from its unique suffix; sandbox ids do not contain it."""


class SandboxDirs:
    def __init__(self, root: Path, made: Path | None = None) -> None:
        """``made``: directory of layers derived from the host; several installations may share it."""
        self.root = root
        self.stage = root / "stage"
        self.images = root / "images"
        self.made = made or root / "made"
        self._sandboxes = root / "sandboxes"
        self._warm = root / "warm"
        self._drafts = root / "drafts"
        self._trash = root / "trash"
        self._unreadable: set[Path] = set()

    def create_layout(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.stage, self.images, self.made, self._sandboxes, self._warm, self._drafts, self._trash):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, sandbox_id: str) -> Path:
        if not _SAFE.fullmatch(sandbox_id):
            raise errors.SandboxNotFound.by_id(sandbox_id)
        return self._sandboxes / sandbox_id

    def has(self, sandbox_id: str) -> bool:
        return os.path.lexists(self.folder(sandbox_id))

    def draft(self) -> Path:
        path = self._drafts / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        return path

    def publish(self, draft: Path, sandbox_id: str) -> Path:
        """A finished draft becomes this sandbox. Of two concurrent callers the first succeeds."""
        folder = self.folder(sandbox_id)
        try:
            draft.rename(folder)
        except OSError as error:
            raise SandboxExists(f"Sandbox {sandbox_id!r} was made by another server.") from error
        return folder

    def add_warm(self, draft: Path) -> Path:
        folder = self._warm / draft.name
        draft.rename(folder)
        return folder

    def claim_warm(self, folder: Path) -> Path | None:
        """Claim a warm machine. None if another server was faster."""
        draft = self._drafts / folder.name
        try:
            os.utime(folder)  # so that a server starting now does not take it for an abandoned draft
            folder.rename(draft)
        except FileNotFoundError:
            return None
        return draft

    def discard(self, folder: Path) -> Path | None:
        """Move to the trash; the directory then belongs to no sandbox. None if it does not exist."""
        gone = self._trash / f"{folder.name}{_TRASH_SEPARATOR}{secrets.token_hex(4)}"
        try:
            folder.rename(gone)
        except FileNotFoundError:
            return None
        return gone

    def sandboxes(self) -> Iterator[tuple[Path, SandboxRecord]]:
        yield from self._records(self._sandboxes)

    def warm(self) -> Iterator[tuple[Path, SandboxRecord]]:
        yield from self._records(self._warm)

    def discarded(self, sandbox_id: str | None = None) -> list[Path]:
        """Directories waiting for removal; of this sandbox if one is given."""
        own = "" if sandbox_id is None else f"{sandbox_id}{_TRASH_SEPARATOR}"
        return [path for path in self._trash.iterdir() if path.name.startswith(own)]

    def unreadable(self) -> bool:
        """Whether any record cannot be read: the resources of that sandbox are then unknown."""
        return bool(self._unreadable)

    def drafts(self) -> set[str]:
        return {path.name for path in self._drafts.iterdir()}

    def abandoned(self) -> list[Path]:
        """Drafts of a server that died. Younger ones may belong to another server that is just creating them."""
        found = []
        for path in self._drafts.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
                    found.append(path)
        return found

    def _records(self, place: Path) -> Iterator[tuple[Path, SandboxRecord]]:
        try:
            names = sorted(os.listdir(place))  # noqa: PTH208
        except OSError as error:
            raise errors.ProviderUnavailable(f"The folder of the sandboxes cannot be read: {error}") from error
        for name in names:
            try:
                record = SandboxRecord.load(place / name)
            # unknown is not the same as gone: requests for this sandbox get the error
            except errors.ProviderUnavailable as error:
                if place / name not in self._unreadable:
                    log.error("the record of a sandbox cannot be read", folder=str(place / name), problem=error.message)
                self._unreadable.add(place / name)
                continue
            self._unreadable.discard(place / name)
            if record is not None:
                yield place / name, record


class SandboxExists(errors.AlreadyExists):
    pass
