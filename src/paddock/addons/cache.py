"""Packed copies of add-ons that were made on this machine, so that the next installation takes seconds.

They are the user's own, beside what other programs cache for him; whoever runs Paddock may delete them at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

from paddock.addons.recipe import BuiltAddon

_NOTE = ".made.json"
_PACK = "gzip -1"


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "paddock" / "addons"


class Cache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def size(self) -> int:
        """Bytes of all copies. 0: there is none."""
        return sum(packed.stat().st_size for packed in self._folder.glob("*.tar.gz"))

    def unpack(self, name: str, key: str, folder: Path) -> BuiltAddon | None:
        """Into the empty folder. None: there is nothing of this key, or it cannot be read."""
        packed = self._path(name, key)
        if not packed.is_file() or packed.stat().st_uid != os.geteuid():
            return None
        done = subprocess.run(["tar", "-xzf", packed, "-C", folder], capture_output=True, check=False)
        try:
            if done.returncode != 0:
                raise ValueError
            note: Any = json.loads((folder / _NOTE).read_text())
            (folder / _NOTE).unlink()
            return BuiltAddon(str(note["version"]), dict(note["parts"]))
        except (OSError, ValueError, KeyError, TypeError):
            packed.unlink(missing_ok=True)
            return None

    def pack(self, name: str, key: str, folder: Path, made: BuiltAddon) -> None:
        """In the place of what there was of this add-on. A disk without room for it is no reason to fail."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f".{secrets.token_hex(4)}"
        note = folder / _NOTE
        note.write_text(json.dumps({"version": made.version, "parts": dict(made.parts)}))
        try:
            command: list[str | Path] = ["tar", "-cf", draft, f"--use-compress-program={_PACK}", "-C", folder, "."]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                for old in self._folder.glob(f"{name}-*.tar.gz"):
                    old.unlink()
                draft.rename(self._path(name, key))
        finally:
            note.unlink()
            draft.unlink(missing_ok=True)

    def _path(self, name: str, key: str) -> Path:
        return self._folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.tar.gz"
