"""The wheels that are tried: those of a release (``PADDOCK_TEST_DIST``), else built here from this checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hatch_build
from tests.e2b.environments import locked

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "packaging"
_SOURCES = ("agent", "client", "src", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
_BUILD_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Wheels:
    folder: Path

    @property
    def client(self) -> Path:
        return self._one("paddock_client-*.whl")

    @property
    def server(self) -> Path:
        """For this machine."""
        return self._one(f"paddock_sandbox-*_{hatch_build.native_architecture()}.whl")

    @property
    def servers(self) -> list[Path]:
        return sorted(self.folder.glob("paddock_sandbox-*.whl"))

    def _one(self, pattern: str) -> Path:
        (found,) = self.folder.glob(pattern)
        return found


def find() -> Wheels:
    """Built once for each state of the sources; several processes may ask at once."""
    if released := os.environ.get("PADDOCK_TEST_DIST"):
        return Wheels(Path(released).resolve())
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "lock"):
        folder = CACHE / f"dist-{_digest()}"
        if not folder.exists():
            for older in CACHE.glob("dist-*"):
                shutil.rmtree(older)
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                made = _build(Path(scratch))
                made.rename(folder)
    return Wheels(folder)


def _build(scratch: Path) -> Path:
    """In a copy: what runs from this checkout meanwhile keeps its own programs."""
    ignored = shutil.ignore_patterns("__pycache__", "bin", "build")
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, scratch / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, scratch)
    made = scratch / "made"
    environment = {name: value for name, value in os.environ.items() if name != "PADDOCK_ARCHITECTURE"}
    for folder in (scratch, scratch / "client"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made],
            cwd=folder,
            env=environment,
            check=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    return made


def _digest() -> str:
    digest = hashlib.sha256()
    for name in _SOURCES:
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and not {"__pycache__", "bin", "build"} & set(path.relative_to(ROOT).parts):
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
