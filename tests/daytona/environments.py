"""Daytona's SDK, and LangChain's package on it, as their users install them: each in a place of its own in ``build/``.

An environment is made again only when its pins change. A registry that does not answer is tried again; when it still
does not, nothing can be said about the SDK, and the tests are skipped with that reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2b.environments import pip_for

CACHE = Path(__file__).resolve().parents[2] / "build" / "daytona"
_INSTALL_SECONDS = 900
_TRIES = 3


class Unavailable(Exception):
    """It cannot be installed now."""


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


_RUNNER = ("pytest==9.0.1", "pytest-timeout==2.4.0")
SDK = Environment("sdk", ("daytona==0.226.1", *_RUNNER))
JAVASCRIPT = Environment("javascript", ("@daytona/sdk@0.216.0", "socket.io-client@4.8.1"))
# The SDK names ranges of two packages of which one wants exactly its own version of the other.
_AWS = ("@aws-sdk/client-s3", "@aws-sdk/lib-storage")
_AWS_VERSION = "3.1131.0"
# The suite of langchain-tests says what deepagents 0.6 does; 0.7 changed its mind about globs and overwriting.
LANGCHAIN = Environment(
    "langchain",
    (
        "daytona==0.226.1",
        "langchain-daytona==0.0.7",
        "deepagents==0.6.12",
        "langchain-tests==1.1.9",
        "pytest-asyncio==1.4.0",
        "pytest-timeout==2.4.0",
    ),
)


def prepare(environment: Environment) -> None:
    """Install it, unless it is there already. Several processes may ask at once."""

    def install() -> None:
        venv.create(environment.folder)
        _install(environment, [*pip_for(environment.python), "install", "-q", *environment.packages])

    _once(environment, install)


def prepare_javascript(environment: Environment) -> None:
    """The same with npm."""

    def install() -> None:
        environment.folder.mkdir(parents=True)
        package = {"private": True, "type": "module", "overrides": dict.fromkeys(_AWS, _AWS_VERSION)}
        (environment.folder / "package.json").write_text(json.dumps(package))
        _install(environment, ["npm", "install", "--silent", "--no-audit", "--no-fund", *environment.packages])

    _once(environment, install)


def _once(environment: Environment, install: Callable[[], None]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp = environment.folder / "installed"
    pins = hashlib.sha256(json.dumps([sys.version, *environment.packages]).encode()).hexdigest()
    with locked(CACHE / f"{environment.name}.lock"):
        if stamp.exists() and stamp.read_text() == pins:
            return
        shutil.rmtree(environment.folder, ignore_errors=True)
        install()
        stamp.write_text(pins)


def _install(environment: Environment, command: Sequence[str | Path]) -> None:
    said = ""
    for attempt in range(_TRIES):
        time.sleep(5 * attempt)
        try:
            done = subprocess.run(
                command, cwd=environment.folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            said = f"took longer than {_INSTALL_SECONDS} s"
            continue
        if done.returncode == 0:
            return
        said = (done.stdout + done.stderr)[-1000:]
    raise Unavailable(f"cannot install {', '.join(environment.packages)}: {said}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else is in here with the same file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
