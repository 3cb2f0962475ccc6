"""The SDKs as their users install them: pinned versions from the ordinary registries, each in a place of its own.

Oldest is the first version that needs nothing but ``E2B_SANDBOX_URL`` for all that it does, which is what makes plain
HTTP without DNS possible. The environments are kept under ``build/`` and made again only when their pins change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "e2b"
_INSTALL_SECONDS = 300


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True)
class Environment:
    """``packages`` are pins in the words of the language's installer; ``newest`` must have every method."""

    name: str
    language: Language
    packages: tuple[str, ...]
    newest: bool = False

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @property
    def missing(self) -> str | None:
        """Why it cannot be made on this machine."""
        if self.language is Language.JAVASCRIPT and not (shutil.which("node") and shutil.which("npm")):
            return "needs node and npm"
        return None

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def program(self, name: str) -> Path:
        return self.folder / "node_modules" / ".bin" / name


_RUNNER = ("pytest==9.0.1", "pytest-timeout==2.4.0")

PYTHON_NEWEST = Environment(
    "python-newest", Language.PYTHON, ("e2b==2.63.0", "e2b-code-interpreter==2.11.5", *_RUNNER), newest=True
)
PYTHON_OLDEST = Environment("python-oldest", Language.PYTHON, ("e2b==2.26.0", "e2b-code-interpreter==2.9.0", *_RUNNER))
JS_NEWEST = Environment("js-newest", Language.JAVASCRIPT, ("e2b@2.51.0", "@e2b/code-interpreter@2.8.0"), newest=True)
JS_OLDEST = Environment("js-oldest", Language.JAVASCRIPT, ("e2b@2.28.0", "@e2b/code-interpreter@2.7.0"))
CLI = Environment("cli", Language.JAVASCRIPT, ("@e2b/cli@2.19.0",), newest=True)


def prepare(environment: Environment) -> None:
    """Install it, unless it is there already. Several processes may ask at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp = environment.folder / "installed"
    pins = hashlib.sha256(json.dumps([sys.version, *environment.packages]).encode()).hexdigest()
    with locked(CACHE / f"{environment.name}.lock"):
        if stamp.exists() and stamp.read_text() == pins:
            return
        shutil.rmtree(environment.folder, ignore_errors=True)
        if environment.language is Language.PYTHON:
            _install_python(environment)
        else:
            _install_javascript(environment)
        stamp.write_text(pins)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else is in here with the same file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pip_for(python: Path) -> list[str | Path]:
    """Ours, which installs for that one: to give every environment its own takes seconds."""
    return [sys.executable, "-m", "pip", "--python", python]


def _install_python(environment: Environment) -> None:
    venv.create(environment.folder)
    _run([*pip_for(environment.python), "install", "-q", *environment.packages], environment)


def _install_javascript(environment: Environment) -> None:
    environment.folder.mkdir(parents=True)
    (environment.folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", *environment.packages], environment)


def _run(command: list[str | Path], environment: Environment) -> None:
    done = subprocess.run(command, cwd=environment.folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    if done.returncode:
        raise RuntimeError(f"cannot install {', '.join(environment.packages)}: {done.stdout}{done.stderr}")
