"""Homes of the local provider that start quickly: what is derived from the host is made once for all tests of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from paddock.providers.base import Provider, Shape
from paddock.providers.common.sandbox_dirs import SandboxDirs
from paddock.providers.local import LocalProvider
from tests.local import traces

_shared: Path | None = None
_homes: set[Path] = set()


def share(folder: Path) -> None:
    """Where the layers of the host and the empty disks are kept. Called once, before the first test."""
    global _shared
    _shared = folder


def lay_out(home: Path) -> Path:
    """The folder of the local provider in this home, before its first start."""
    assert _shared is not None
    _homes.add(home)
    root = home / "local"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("made", "images"):
        (_shared / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(_shared / name)
    return root


def machines(home: Path) -> dict[str, str]:
    """Every sandbox that there really is, and its state, whatever any server knows."""
    return {
        record.spec.sandbox_id: record.process_state().value for _, record in SandboxDirs(home / "local").sandboxes()
    }


def warm_machines(home: Path) -> dict[Shape, int]:
    """How many really stand ready, whichever server made them."""
    found: dict[Shape, int] = {}
    for _, record in SandboxDirs(home / "local").warm():
        shape = Shape(record.spec.template_id, record.spec.resources.disk_mb)
        found[shape] = found.get(shape, 0) + 1
    return found


async def write(home: Path, sandbox_id: str, path: str) -> None:
    """An empty file in a sandbox, past the server that runs on this home."""

    async def nothing() -> AsyncIterator[bytes]:
        return
        yield

    provider = LocalProvider(home / "local")
    await provider.start()
    try:
        await (await provider.attach(sandbox_id)).write_file(path, nothing())
    finally:
        await provider.close()


async def delete_all(provider: Provider) -> None:
    for found in await provider.list():
        await provider.delete(found.sandbox_id)
    for shape, count in (await provider.warmed()).items():
        await provider.cool(shape, count)


async def clear(home: Path) -> None:
    """End and remove every sandbox of a home that no server uses any more, and check that nothing of them is left."""
    root = home / "local"
    if not (root / "sandboxes").is_dir() or traces.folders(root) == traces.NOTHING.folders:
        return
    for draft in (root / "drafts").iterdir():
        os.utime(draft, (0, 0))  # until then it could be a living server's
    provider = LocalProvider(root)
    await provider.start()
    try:
        await delete_all(provider)
    finally:
        await provider.close()
    await traces.until_nothing(root)


def clear_all() -> None:
    """After the last test: what those that failed have left."""
    for home in _homes:
        asyncio.run(clear(home))
