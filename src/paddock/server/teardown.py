"""Ends and removes everything of one home directory. No server may run on it meanwhile.

Machines are deleted through their provider first; then the files, and of those only what Paddock created.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock import errors, removal
from paddock.addons.cache import Cache, default_folder
from paddock.clock import SystemClock
from paddock.home import RECORD
from paddock.providers.base import Provider
from paddock.providers.registry import AVAILABLE, RETIRED, build_used
from paddock.settings import Settings
from paddock.store.database import Store

_MAX_CONCURRENT_DELETES = 8
_KEY = "key"
_DATABASE = "paddock.db"
_ENTRIES = (*AVAILABLE, *RETIRED, "templates", "images", "addons", "interpreter", "notes", "node", RECORD)
"""Directories and files that a server or a command creates in its home, besides the database and the key."""


@dataclass(frozen=True, slots=True)
class HomeInventory:
    """What there is to remove."""

    home: Path
    sandboxes: Mapping[str, Sequence[str]]
    """Sandbox ids by provider."""
    entries: Sequence[Path]
    """In the order of removal. The key is last: as long as it exists, the directory counts as a home."""
    strangers: Sequence[Path]
    """Files that Paddock did not create."""
    outside: Sequence[str]
    """What belongs to the server but is not in its home; it is not removed."""


def require_home(home: Path) -> None:
    """Raise unless a server has used this directory as its home."""
    if not (home / _KEY).is_file() or not any((home / name).exists() for name in (_DATABASE, "notes")):
        raise errors.Invalid(
            f"{home} is no home of Paddock's: nothing is removed. Name one with --home or PADDOCK_HOME."
        )


async def take_inventory(settings: Settings) -> HomeInventory:
    require_home(settings.home)
    async with _providers(settings, start=False) as providers:
        sandboxes = {name: [found.sandbox_id for found in await each.list()] for name, each in providers.items()}
    ours: list[Path] = []
    strangers: list[Path] = []
    for path in sorted(settings.home.iterdir()):
        (ours if _is_ours(path.name) else strangers).append(path)
    ours.sort(key=lambda path: path.name == _KEY)
    return HomeInventory(settings.home, sandboxes, ours, strangers, list(_outside(settings)))


async def end_machines(settings: Settings) -> int:
    """Delete every sandbox and warm machine; returns the number of sandboxes. Can be repeated after a crash."""
    count = 0
    async with _providers(settings, start=True) as providers:
        for provider in providers.values():
            found = await provider.list()
            places = asyncio.Semaphore(_MAX_CONCURRENT_DELETES)
            await asyncio.gather(*(_delete(provider, each.sandbox_id, places) for each in found))
            for shape, ready in (await provider.warmed()).items():
                await provider.cool(shape, ready)
            count += len(found)
    return count


def remove_files(inventory: HomeInventory) -> None:
    """Remove Paddock's files, and the home itself if nothing else is in it."""
    for path in inventory.entries:
        if path.is_dir() and not path.is_symlink():
            removal.remove(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other files stay, and the directory with them
        inventory.home.rmdir()


def _is_ours(name: str) -> bool:
    return name in _ENTRIES or name.startswith((_DATABASE, f"{RECORD}.", "node.")) or name in (_KEY, f"{_KEY}.new")


def _outside(settings: Settings) -> Iterator[str]:
    file = Store(settings.database_url).file
    if file is None:
        yield "the database in PostgreSQL"
    elif file.parent != settings.home:
        yield f"the database {file}"
    if settings.installation:
        yield (
            f"machines at a vendor of the installation {settings.installation!r}, which other servers may share "
            "(`paddock down --sandboxes` deletes them)"
        )
    if size := Cache(folder := default_folder()).size:
        yield (
            f"packed copies of add-ons, {max(1, size >> 20)} MB in {folder}, which every server of this user may use "
            f"(`rm -r {shlex.quote(str(folder))}` removes them)"
        )


async def _delete(provider: Provider, sandbox_id: str, places: asyncio.Semaphore) -> None:
    async with places:
        await provider.delete(sandbox_id)


@contextlib.asynccontextmanager
async def _providers(settings: Settings, *, start: bool) -> AsyncIterator[Mapping[str, Provider]]:
    providers = build_used(settings, SystemClock())
    try:
        if start:
            for provider in providers.values():
                await provider.start()
        yield providers
    finally:
        for provider in providers.values():
            await provider.close()
