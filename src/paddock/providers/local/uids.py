"""Ranges of user ids: each sandbox of a privileged server has 65,536 that no other sandbox of this host has.

The claims are files in ``/run``, so that several installations share them and a reboot clears them. Which range a
sandbox gets may differ each time it starts: on its disk the ids are written without the offset.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from paddock import errors

FIRST = 0x7000_0000
"""Above what distributions, containers and systemd hand out."""
COUNT = 65_536
SLOTS = 4095
_CLAIMS = Path("/run/paddock/uids")
_YOUNG_SECONDS = 300.0


def base(slot: int) -> int:
    return FIRST + slot * COUNT


def claim(owner: Path) -> int:
    """A free range, in the name of the folder of a sandbox."""
    _CLAIMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    first = secrets.randbelow(SLOTS)
    for step in range(SLOTS):
        slot = (first + step) % SLOTS
        if _take(slot, owner):
            return slot
    raise errors.ProviderRefused("All ranges of user ids are taken: this machine runs too many sandboxes.")


def release(slot: int) -> None:
    (_CLAIMS / str(slot)).unlink(missing_ok=True)


def describe(slot: int) -> tuple[str, str]:
    """The file of a claim, and what stands in it: by both together it is that claim and no later one."""
    path = _CLAIMS / str(slot)
    try:
        return str(path), path.read_text()
    except OSError:
        return "", ""


def _take(slot: int, owner: Path) -> bool:
    try:
        descriptor = os.open(_CLAIMS / str(slot), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(str(owner))
    return True


def release_stale(home: Path, in_use: set[int]) -> None:
    """Claims of this installation that no sandbox of it has: a crash came between the claim and the record."""
    if not _CLAIMS.is_dir():
        return
    for path in _CLAIMS.iterdir():
        if path.name.isdecimal() and int(path.name) not in in_use and _stale(path, home):
            path.unlink(missing_ok=True)


def _stale(claim: Path, home: Path) -> bool:
    """Another server on the same home may be about to write the record: what is young and has a folder is its."""
    try:
        owner = Path(claim.read_text())
        young = time.time() - claim.stat().st_mtime < _YOUNG_SECONDS
    except FileNotFoundError:
        return False
    return owner.is_relative_to(home) and not (young and owner.exists())
