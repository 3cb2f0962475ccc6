"""Where the sandboxes of one installation are kept, and how one moves from being made to being there to being gone.

Each is one folder, and every step is one rename, so that a crash at any point leaves it on one side or the other:
``drafts/`` (being made), ``warm/`` (made in advance), ``sandboxes/`` (somebody's), ``trash/`` (being removed).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from paddock import errors
from paddock.providers.ground.record import Record

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_ABANDONED_SECONDS = 300.0


class Yard:
    def __init__(self, root: Path, made: Path | None = None) -> None:
        """``made``: where layers that are derived from the host are kept; several installations may share them."""
        self.root = root
        self.stage = root / "stage"
        self.images = root / "images"
        self.made = made or root / "made"
        self._sandboxes = root / "sandboxes"
        self._warm = root / "warm"
        self._drafts = root / "drafts"
        self._trash = root / "trash"

    def lay_out(self) -> None:
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

    def settle(self, draft: Path, sandbox_id: str) -> Path:
        """A finished draft becomes that sandbox. The first of two wins."""
        folder = self.folder(sandbox_id)
        try:
            draft.rename(folder)
        except OSError as error:
            raise AlreadyThere(f"Sandbox {sandbox_id!r} was made by another server.") from error
        return folder

    def put_warm(self, draft: Path) -> Path:
        folder = self._warm / draft.name
        draft.rename(folder)
        return folder

    def take_warm(self, folder: Path) -> Path | None:
        """Out of the stock, for us alone. None when somebody else was quicker."""
        draft = self._drafts / folder.name
        try:
            os.utime(folder)  # no old draft, which a server that starts now would clear away
            folder.rename(draft)
        except FileNotFoundError:
            return None
        return draft

    def discard(self, folder: Path) -> Path | None:
        """From here on it is nobody's. None when there is nothing."""
        gone = self._trash / f"{folder.name}.{secrets.token_hex(4)}"
        try:
            folder.rename(gone)
        except FileNotFoundError:
            return None
        return gone

    def sandboxes(self) -> Iterator[tuple[Path, Record]]:
        yield from self._records(self._sandboxes)

    def warm(self) -> Iterator[tuple[Path, Record]]:
        yield from self._records(self._warm)

    def discarded(self) -> list[Path]:
        return list(self._trash.iterdir())

    def drafts(self) -> set[str]:
        return {path.name for path in self._drafts.iterdir()}

    def abandoned(self) -> list[Path]:
        """Drafts of a server that died. Younger ones may be another server's, being made right now."""
        found = []
        for path in self._drafts.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    found.append(path)
        return found

    def _records(self, place: Path) -> Iterator[tuple[Path, Record]]:
        try:
            names = sorted(os.listdir(place))  # noqa: PTH208
        except OSError as error:
            raise errors.ProviderUnavailable(f"The folder of the sandboxes cannot be read: {error}") from error
        for name in names:
            if (record := Record.load(place / name)) is not None:
                yield place / name, record


class AlreadyThere(errors.AlreadyExists):
    pass
