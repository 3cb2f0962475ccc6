"""What one entry of a layer's tar says, checked: its path, owner, times and extended attributes."""

from __future__ import annotations

import posixpath
import tarfile

MAX_DEPTH = 512
_XATTR = "SCHILY.xattr."
_KEPT_XATTRS = ("user.", "security.capability")
_OWN_XATTRS = "user.overlay."
"""Overlayfs would take them for its own where an ordinary user mounts."""
_MAX_TIME = 1 << 33
_MAX_ID = (1 << 32) - 2


class Refused(Exception):
    """What is wrong with the layer."""


def clean_path(name: str) -> str:
    """Relative to the layer. Empty: the layer itself."""
    if "\0" in name:
        raise Refused(f"{shown(name)} cannot be a name")
    path = posixpath.normpath(name.lstrip("/"))
    if path == ".." or path.startswith("../"):
        raise Refused(f"{shown(name)} leads out of the layer")
    if path.count("/") > MAX_DEPTH:
        raise Refused(f"{shown(name)} is too deep")
    return "" if path == "." else path


def owner(entry: tarfile.TarInfo) -> tuple[int, int]:
    if not (0 <= entry.uid <= _MAX_ID and 0 <= entry.gid <= _MAX_ID):
        raise Refused(f"{shown(entry.name)} has an impossible owner")
    return entry.uid, entry.gid


def xattrs(entry: tarfile.TarInfo, owners: bool) -> list[tuple[str, bytes]]:
    found = []
    for key, value in entry.pax_headers.items():
        name = key.removeprefix(_XATTR)
        if name == key or not name.startswith(_KEPT_XATTRS) or name.startswith(_OWN_XATTRS):
            continue
        if owners or name.startswith("user."):
            found.append((name, value.encode("utf-8", "surrogateescape")))
    return found


def nanoseconds(when: float) -> int:
    return int(min(max(when, 0), _MAX_TIME) * 1_000_000_000)


def shown(name: str) -> str:
    return repr(name[:200])
