"""Unpacks layers, each in a confined process, and checks what that process says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.disk_space import reserve_bytes, room

_OPAQUE = "trusted.overlay.opaque"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_REPORT = 256 << 20
_MAX_SAID = 2000


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one layer, so that no image fills the disk."""

    layer_bytes: int = 32 << 30
    layer_inodes: int = 2_000_000
    reserve_mb: int = 0
    """What stays free on the disk; 0: as for sandboxes."""

    def free_bytes(self, place: Path) -> int:
        return reserve_bytes(room(place), self.reserve_mb)


@dataclass(frozen=True, slots=True)
class UnpackedLayer:
    diff_id: str
    implicit: tuple[str, ...]
    size: int
    inodes: int


async def unpack(blob: Path, root: Path, limits: Limits, name: str) -> UnpackedLayer:
    """Into the empty directory. Raises ImageInvalid with what is wrong with the layer, which ``name`` names."""
    privileged = os.geteuid() == 0
    quota = {
        "bytes": limits.layer_bytes,
        "inodes": limits.layer_inodes,
        "free_bytes": limits.free_bytes(root),
        "owners": int(privileged),
    }
    said = await _run(blob, root, quota, name)
    if "unconfined" in said:
        raise errors.Unsupported(
            "Layers are unpacked in a process that is shut in, which this machine does not allow: "
            f"{str(said['unconfined'])[:_MAX_SAID]}. `paddock doctor` says what the local provider needs."
        )
    if "full" in said:
        raise errors.InsufficientStorage(f"The host's disk has no room for the image ({name}).")
    if "refused" in said:
        raise errors.ImageInvalid(f"The layer {name} cannot be used: {str(said['refused'])[:_MAX_SAID]}.")
    try:
        implicit = tuple(_path(each) for each in said["implicit"])
        opaque = tuple(_path(each) for each in said["opaque"])
        layer = UnpackedLayer(str(said["diff_id"]), implicit, int(said["size"]), int(said["inodes"]))
    except (KeyError, TypeError, ValueError):
        raise errors.ImageInvalid(f"The layer {name} cannot be used: unpacking it went wrong.") from None
    if privileged:
        await asyncio.to_thread(_mark_opaque, root, opaque)
    return layer


async def _run(blob: Path, root: Path, quota: dict[str, int], name: str) -> dict[str, Any]:
    # The environment may hold secrets, and nothing of it is needed.
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUTF8": "1"}
    words = (sys.executable, "-P", "-m", "paddock.images.unpack_process", str(root), json.dumps(quota))
    with blob.open("rb") as content:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=content, stdout=PIPE, stderr=PIPE, env=env, cwd="/", start_new_session=True, limit=_MAX_REPORT
        )
    try:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101 - both are pipes
        line, problem = await asyncio.gather(process.stdout.readline(), _last(process.stderr))
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if status != 0 or not isinstance(said, dict):
        raise errors.ImageInvalid(
            f"The layer {name} cannot be used: unpacking it ended with {status} {problem.decode(errors='replace')}"
        )
    return said


async def _last(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while chunk := await stream.read(65536):
        kept = (kept + chunk)[-_MAX_SAID:]
    return kept.strip()


def _path(said: object) -> str:
    if not isinstance(said, str) or said.startswith("/") or ".." in said.split("/") or "\0" in said:
        raise ValueError
    return said


def _mark_opaque(root: Path, paths: tuple[str, ...]) -> None:
    """For overlays that root mounts: the attribute is one that the confined process may not set."""
    for path in paths:
        place = os.open(root, _DIRECTORY)
        for part in path.split("/") if path else ():
            below = os.open(part, _DIRECTORY, dir_fd=place)
            os.close(place)
            place = below
        os.setxattr(place, _OPAQUE, b"y")
        os.close(place)
