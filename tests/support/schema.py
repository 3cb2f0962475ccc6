"""New SQLite databases for tests that are not about migrations: copies of one that was migrated."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from paddock.store.database import Store


async def give(url: str) -> None:
    """Where there is no file yet, put one there whose schema is up to date. Other databases are left as they are."""
    file = Store(url).file
    if file is None or file.exists():
        return
    migrated = _folder() / "migrated.db"
    if not migrated.exists():
        store = Store(f"sqlite:///{migrated}.part")
        await store.open()
        await store.close()
        Path(f"{migrated}.part").rename(migrated)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(migrated, file)


@functools.cache
def _folder() -> Path:
    """One for each process of the run."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-schema-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
