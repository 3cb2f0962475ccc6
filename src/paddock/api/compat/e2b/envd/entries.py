"""Files in envd's format (``EntryInfo``): Go's permission strings, and resolved symlinks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paddock import errors
from paddock.api.compat.e2b.envd.users import ROOT
from paddock.machine.base import FileInfo, FileType, Machine

_TYPES = {FileType.FILE: "FILE_TYPE_FILE", FileType.DIRECTORY: "FILE_TYPE_DIRECTORY"}
_UNKNOWN = "FILE_TYPE_UNSPECIFIED"
_LETTERS = {FileType.DIRECTORY: "d", FileType.SYMLINK: "L"}
_SET_UID, _SET_GID, _STICKY = 0o4000, 0o2000, 0o1000
_MAX_CONCURRENT = 64
"""Maximum symlinks resolved concurrently."""


async def describe(machine: Machine, found: Sequence[FileInfo]) -> list[dict[str, Any]]:
    """Describe up to a few hundred files: each symlink takes a round trip."""
    gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def behind(info: FileInfo) -> FileInfo | None:
        if info.type is not FileType.SYMLINK:
            return None
        async with gate:
            return await _target(machine, info.path)

    pinned = await machine.attributes([info.path for info in found], user=ROOT) if found else []
    if any(info.type is FileType.SYMLINK for info in found):
        targets = await asyncio.gather(*(behind(info) for info in found))
    else:
        targets = [None] * len(found)
    return [_document(info, target, metadata) for info, target, metadata in zip(found, targets, pinned, strict=True)]


async def describe_one(machine: Machine, path: str, viewer: str) -> dict[str, Any]:
    """Describe the file at this path; a symlink is not followed."""
    return (await describe(machine, [await machine.stat(path, user=viewer)]))[0]


async def _target(machine: Machine, path: str) -> FileInfo | None:
    """The file that a symlink points to; None if it is broken."""
    try:
        return await machine.resolve(path, user=ROOT)
    except (errors.PathNotFound, errors.PathConflict, errors.PathDenied):
        return None


def _document(info: FileInfo, target: FileInfo | None, metadata: dict[str, str]) -> dict[str, Any]:
    link = info.type is FileType.SYMLINK
    seen = target if link else info
    document = {
        "name": info.name,
        "type": _UNKNOWN if seen is None else _TYPES.get(seen.type, _UNKNOWN),
        "path": info.path,
        "size": str(info.size),
        "mode": 0 if seen is None else seen.mode & 0o777,
        "permissions": _permissions(info),
        "owner": info.owner,
        "group": info.group,
        "modifiedTime": _time(info.modified_at),
        "isSymlink": link,
    }
    if link:
        # As in envd, the target of a broken symlink is the symlink itself.
        document["symlinkTarget"] = info.path if target is None else target.path
    if metadata:
        document["metadata"] = metadata
    return document


def _permissions(info: FileInfo) -> str:
    """As Go's ``FileMode.String``: letters for special bits, in order, then the nine permission letters."""
    special = _LETTERS.get(info.type, "")
    for bit, letter in ((_SET_UID, "u"), (_SET_GID, "g"), (_STICKY, "t")):
        special += letter if info.mode & bit else ""
    nine = "".join(letter if info.mode >> (8 - at) & 1 else "-" for at, letter in enumerate("rwxrwxrwx"))
    return (special or "-") + nine


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
