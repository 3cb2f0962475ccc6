"""deepagents as its users install it: pinned versions from PyPI, in environments of their own under ``build/``.

Both lines of deepagents need the very same packages, so the older one is laid over the environment of the newer. The
CLI wants a newer Python than Paddock does; its interface to providers, a module without dependencies, is there on any.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2b.environments import locked, pip_for

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "deepagents"
PINS = Path(__file__).parent / "pins"
_INSTALL_SECONDS = 600
_TRIES = 3
_PAUSE = 3.0


@dataclass(frozen=True, slots=True)
class Overlay:
    """One package, without what it needs, to be put before an environment."""

    name: str
    requirement: str

    @property
    def folder(self) -> Path:
        return CACHE / self.name


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    pins: str
    overlays: tuple[Overlay, ...] = field(default=())
    pythons: tuple[str, ...] = (sys.executable,)
    """The first of these that there is, on the ``PATH`` or among those that pyenv and uv keep."""

    @property
    def folder(self) -> Path:
        return CACHE / self.pins.removesuffix(".txt")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def path(self) -> str:
        """For ``PYTHONPATH``: Paddock as it is here needs nothing that these environments do not have."""
        return os.pathsep.join(map(str, (*(overlay.folder for overlay in self.overlays), ROOT / "src")))


_OLDER = Overlay("deepagents-older", "deepagents==0.6.12")
_INTERFACE = Overlay("dcode-interface", "deepagents-code==0.1.88")
OLDER = Environment("deepagents 0.6.12", "deepagents.txt", (_OLDER,))
NEWER = Environment("deepagents 0.7.32", "deepagents.txt", (_INTERFACE,))
DCODE = Environment("dcode 0.1.88", "dcode.txt", pythons=("python3.12", "python3.13", "python3.14"))


def prepare(environment: Environment) -> None:
    """Install it, unless it is there already. Several processes may ask at once. Skips the test where that is not to be
    had: no such Python, or a registry that does not answer."""
    base = next((python for name in environment.pythons for python in _places(name) if _runs(python)), None)
    if base is None:
        pytest.skip(f"needs one of {', '.join(environment.pythons)}")
    pins = PINS / environment.pins
    _once(environment.folder, f"{base}\n{pins.read_text()}", lambda: _make(environment, base, pins))
    for overlay in environment.overlays:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--ignore-requires-python"]
        target = [*command, "--target", str(overlay.folder), overlay.requirement]
        _once(overlay.folder, overlay.requirement, lambda target=target: _install(target))


def _places(python: str) -> Iterator[str]:
    yield python
    kept = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions"),
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python")),
    )
    for folder in kept:
        yield from map(str, sorted(folder.glob(f"*/bin/{Path(python).name}"), reverse=True))


def _once(folder: Path, content: str, make: Callable[[], None]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed"
    wanted = hashlib.sha256(f"{sys.version}\n{content}".encode()).hexdigest()
    with locked(CACHE / f"{folder.name}.lock"):
        if stamp.exists() and stamp.read_text() == wanted:
            return
        for attempt in range(_TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                make()
                stamp.write_text(wanted)
                return
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                problem = f"{error}: {(error.stderr or b'')[-2000:]!r}"
                time.sleep(_PAUSE * attempt)
        pytest.skip(f"cannot install {folder.name}: {problem}")


def _make(environment: Environment, base: str, pins: Path) -> None:
    if _runs("uv"):
        try:
            _install(["uv", "venv", "-q", "-p", base, str(environment.folder)])
            _install(["uv", "pip", "install", "-q", "--python", str(environment.python), "-r", str(pins)])
            return
        except subprocess.CalledProcessError:  # it may know less about registries than pip does
            shutil.rmtree(environment.folder, ignore_errors=True)
    _install([base, "-m", "venv", "--without-pip", str(environment.folder)])
    _install([*map(str, pip_for(environment.python)), "install", "-q", "-r", str(pins)])


def _install(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_SECONDS)


def _runs(program: str) -> bool:
    """Also that it is more than a stand-in which says that it is not there."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0
