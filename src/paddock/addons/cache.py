"""Packed copies of add-ons built on this machine, which make the next installation fast.

They are stored in the user's cache directory and may be deleted at any time.
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
        """Total bytes of all copies; 0 if there are none."""
        return sum(packed.stat().st_size for packed in self._folder.glob("*.tar.gz"))

    def unpack(self, name: str, key: str, folder: Path) -> BuiltAddon | None:
        """Unpack into an empty directory. None if there is no copy with this key, or it is unreadable."""
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
        """Store a copy in place of earlier ones of this add-on. A full disk is ignored."""
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
