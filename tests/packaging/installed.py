"""Paddock as people install it: from wheels, in an environment of its own, run by root or by an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

ORDINARY_UID = 61234
"""Of nobody on any machine we know."""
_TIMEOUT_S = 280
_KEPT = ("PIP_", "UV_", "SSL_", "HTTP", "http", "NO_PROXY", "no_proxy", "LANG")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Person:
    """Who installs and runs it, with a home directory of their own and nothing of ours in the environment."""

    home: Path
    uid: int = os.geteuid()
    path: str = _SYSTEM_PATH

    def command(self, *argv: str | Path) -> list[str]:
        words = [str(word) for word in argv]
        if self.uid == os.geteuid():
            return words
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", *words]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
        own = {"HOME": str(self.home), "PATH": self.path, "PADDOCK_HOME": str(self.home / "paddock")}
        return {**kept, **own, "SSL_CERT_FILE": _certificates(), **(extra or {})}

    def run(self, *argv: str | Path, fails: bool = False, **extra: str) -> str:
        """What it printed. ``fails``: it has to, and what it complained of is wanted."""
        done = subprocess.run(
            self.command(*argv),
            env=self.environment(extra),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{argv} ended with {done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stderr + done.stdout if fails else done.stdout

    def own(self, path: Path) -> Path:
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.uid)
        return path


@contextmanager
def a_person(uid: int = os.geteuid()) -> Iterator[Person]:
    """Below a directory that others may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-packaging-"))
    try:
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir()
        person = Person(home, uid)
        person.own(home)
        yield person
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def python_for(person: Person) -> Path:
    """One that the person may run, new enough, with ``venv``."""
    for python in (Path("/usr/bin/python3"), Path(sys.executable)):
        ask = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
        tried = subprocess.run(person.command(python, "-c", ask), capture_output=True, cwd="/", check=False)
        if tried.returncode == 0:
            return python
    pytest.skip("needs a Python from 3.11 on, with venv, that an ordinary user may run")


@dataclass(frozen=True, slots=True)
class Environment:
    person: Person
    folder: Path

    @classmethod
    def create(cls, person: Person, name: str = "venv", python: Path | None = None) -> Environment:
        folder = person.home / name
        person.run(python or python_for(person), "-m", "venv", folder)
        return cls(person, folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def paddock(self) -> Path:
        return self.folder / "bin" / "paddock"

    def install(self, *words: str | Path, index: bool = True) -> str:
        options = [] if index else ["--no-index"]
        return self.person.run(self.python, "-m", "pip", "install", "--quiet", *options, *words)

    def names(self) -> set[str]:
        """Of the distributions in it."""
        listed = json.loads(self.person.run(self.python, "-m", "pip", "list", "--format=json"))
        return {each["name"].lower().replace("_", "-") for each in listed}


@contextmanager
def a_server(person: Person, command: list[str | Path], **settings: str) -> Iterator[Server]:
    """``paddock up``, until the end of the block. Sandboxes stay."""
    server = Server(person, command, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Server:
    def __init__(self, person: Person, command: list[str | Path], settings: Mapping[str, str]) -> None:
        self.person = person
        self._command = command
        self._settings = {"PADDOCK_SCHEDULER_INTERVAL": "0.2", **settings}
        self._log = person.home / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def record(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.person.home / "paddock" / "server.json").read_text()))
        except (OSError, ValueError):
            return {}

    @property
    def url(self) -> str:
        return str(self.record["url"])

    @property
    def key(self) -> str:
        return (self.person.home / "paddock" / "key").read_text().strip()

    def start(self, command: list[str | Path] | None = None) -> None:
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self.person.command(*(command or self._command), "up", "--port", "0"),
                env=self.person.environment(self._settings),
                cwd=self.person.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: process.poll() is not None or self.record.get("pid") == process.pid)
        assert process.poll() is None, self.log[-4000:]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(_TIMEOUT_S)


def _certificates() -> str:
    return os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
