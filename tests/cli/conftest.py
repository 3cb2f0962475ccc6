"""The program as a user has it: a process, against a server that ``paddock up`` started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.client import SyncSandboxClient
from tests.cli.forked import Forks
from tests.support import leaks

COMMAND = (sys.executable, "-c", "from paddock.cli.app import main; main()")
FORKS = Forks()


@dataclass(frozen=True)
class Paddock:
    """A terminal of a user."""

    home: Path
    url: str = ""
    key: str = ""

    @property
    def env(self) -> dict[str, str]:
        mine = {"PADDOCK_HOME": str(self.home), "PADDOCK_URL": self.url, "PADDOCK_API_KEY": self.key}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PADDOCK", "SANDBOX"))}
        return kept | {name: value for name, value in mine.items() if value}

    def __call__(
        self, *words: str, input: bytes | str = b"", check: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        done = self.raw(*words, input=input.encode() if isinstance(input, str) else input)
        result = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.stderr, result.stderr
        if check is not None:
            assert result.returncode == check, f"{result.stdout}\n{result.stderr}"
        return result

    def raw(self, *words: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return FORKS.run(words, input=input, env=self.env, cwd=self.home, timeout=60)

    def json(self, *words: str, check: int = 0) -> Any:
        return json.loads(self(*words, "--json", check=check).stdout)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE, "env": self.env}
        return subprocess.Popen((*COMMAND, *words), cwd=self.home, **{**pipes, **options})


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """``paddock up`` on a free port, in a home of its own."""
    home = tmp_path_factory.mktemp("up") / "home"
    home.mkdir(mode=0o755)
    log = (home.parent / "log").open("wb")
    user = Paddock(home)
    env = user.env | {"PADDOCK_RUNSC": "/not/there"}  # whatever this machine has, it cannot give every level
    process = user.start("up", "--port", "0", "--provider", "local", "--json", stderr=log, env=env)
    assert process.stdout is not None
    document = b""
    while not document.rstrip().endswith(b"}"):
        line = process.stdout.readline()
        assert line, (home.parent / "log").read_text()
        document += line
    url = json.loads(document)["url"]
    # It says where it will be before it is there.
    while Paddock(home, url)("health", check=None).returncode:
        assert process.poll() is None, (home.parent / "log").read_text()
    yield home, url
    # Sandboxes outlive their server.
    with SyncSandboxClient(url, api_key=(home / "key").read_text()) as client:
        for sandbox in client.iter_sandboxes():
            client.delete_sandbox(sandbox.sandbox_id)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) in (0, 130)
    leaks.check_home(home, (home.parent / "log").read_text(errors="replace"))


@pytest.fixture
def paddock(up: tuple[Path, str]) -> Paddock:
    """A user on the server's own machine, who finds the key in its file."""
    home, url = up
    return Paddock(home, url)


@pytest.fixture
def box(paddock: Paddock) -> Iterator[str]:
    key = (paddock.home / "key").read_text().strip()
    with SyncSandboxClient(paddock.url, api_key=key) as client:
        sandbox_id = client.create_sandbox("alice").sandbox_id
        yield sandbox_id
        client.delete_sandbox(sandbox_id)
