"""``paddock up``: what it prints works as printed, and what keeps it from starting is said instead."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from paddock.client.connection import find_api_key, find_server_url
from paddock.home import RECORD, running_server
from tests.cli.conftest import Paddock
from tests.support.postgres import Postgres


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[bytes]
    home: Path
    printed: str

    @property
    def url(self) -> str:
        found = re.search(r"^server\s+(\S+)", self.printed, re.MULTILINE)
        assert found
        return found[1]

    def stop(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(30)


def _start(home: Path, *words: str) -> Started:
    home.mkdir()
    with (home.parent / "log").open("wb") as log:
        process = Paddock(home).start(
            "up", "--port", "0", "--provider", "local", "--home", str(home), *words, stderr=log
        )
    assert process.stdout is not None
    printed = b""
    while not printed.endswith(b"END\n\n"):
        line = process.stdout.readline()
        assert line, (home.parent / "log").read_text()
        printed += line
    return Started(process, home, printed.decode())


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """With a home and a port that nobody would guess."""
    server = _start(tmp_path_factory.mktemp("up") / "it's a home", "--database-url", "sqlite:///./sandboxes.db")
    assert (server.home / "sandboxes.db").exists()  # where the program was started
    yield server
    with SyncSandboxClient(server.url, api_key=(server.home / "key").read_text()) as client:
        for sandbox in client.iter_sandboxes():
            client.delete_sandbox(sandbox.sandbox_id)
    server.stop(signal.SIGINT)
    assert running_server(server.home) is None
    assert not (server.home / RECORD).exists()


def _new_terminal(**variables: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PADDOCK", "SANDBOX"))}
    return kept | variables


def test_what_it_prints_to_try_works_as_printed(started: Started, tmp_path: Path) -> None:
    lines = started.printed.partition("another terminal:\n")[2]
    done = subprocess.run(
        ["sh", "-e"], input=lines, capture_output=True, text=True, cwd=tmp_path, env=_new_terminal(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    created, answer, system = done.stdout.split("\n", 3)[:3]
    assert re.fullmatch(r"[\w-]+_[0-9a-f]{8}", created)
    assert json.loads(answer)["user_id"] == "alice"
    assert system.startswith(f"{os.uname().sysname} ")


def test_clients_find_the_server_by_its_home(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "SANDBOX_HOST", "SANDBOX_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_HOME", str(started.home))
    assert find_server_url() == started.url
    assert find_api_key(started.url) == (started.home / "key").read_text().strip()
    record = started.home / RECORD
    assert record.stat().st_mode & 0o777 == 0o600
    found = running_server(started.home)
    assert found is not None and found.pid == started.process.pid
    assert "sandboxes" in Paddock(started.home).json("list")


def test_a_server_that_was_killed_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _start(tmp_path / "home", "--database-url", "sqlite+aiosqlite:///./sandboxes.db")
    assert (server.home / "sandboxes.db").exists()
    server.stop(signal.SIGKILL)
    assert (server.home / RECORD).exists()
    assert running_server(server.home) is None
    monkeypatch.setenv("PADDOCK_HOME", str(server.home))
    monkeypatch.delenv("PADDOCK_URL", raising=False)
    assert find_server_url() == "http://127.0.0.1:8080"


def test_the_example_of_the_readme_runs_as_written(started: Started) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    script = readme.partition("```console\n$ .venv/bin/python - <<'END'\n")[2].partition("\nEND\n```")[0]
    assert "SyncSandboxClient()" in script
    done = subprocess.run(
        [sys.executable, "-"],
        input=script,
        capture_output=True,
        text=True,
        env=_new_terminal(PADDOCK_HOME=str(started.home)),
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "0 hello from the paddock\n\n"), done.stderr


def test_an_engine_that_does_not_answer_is_one_sentence_and_no_welcome(tmp_path: Path) -> None:
    user = Paddock(tmp_path)
    done = subprocess.run(
        (sys.executable, "-c", "from paddock.cli.app import main; main()", "up", "--provider", "docker", "--port", "0"),
        capture_output=True,
        text=True,
        env=user.env | {"DOCKER_HOST": "tcp://127.0.0.1:1"},
        cwd=tmp_path,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Error: The engine at http://127.0.0.1:1 does not answer" in done.stderr
    assert "Traceback" not in done.stderr
    assert running_server(tmp_path) is None


@pytest.mark.postgres
async def test_it_starts_on_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    server = _start(tmp_path / "home", "--database-url", await postgres.new_database())
    assert not list(server.home.glob("*.db"))
    server.stop(signal.SIGINT)
    assert server.process.returncode == 0
