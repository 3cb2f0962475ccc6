"""The Docker engine to compare with: a running one, or Debian's own, started for the benchmark."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


class NoEngine(Exception):
    """No engine is available; the message says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    client: str
    host: str
    version: str
    image: str

    def run(self, *options: str) -> list[str]:
        """Arguments that start a container which prints hello."""
        return [self.client, "-H", self.host, "run", "--rm", *options, self.image, "/bin/echo", "hi"]

    def exec(self, container: str) -> list[str]:
        return [self.client, "-H", self.host, "exec", container, "/bin/echo", "hi"]

    @contextmanager
    def containers(self, count: int) -> Iterator[list[str]]:
        """Running containers that wait for commands."""
        names = [f"{self.image.replace(':', '-')}-{number}" for number in range(count)]
        try:
            for name in names:
                _docker(self.client, self.host, "run", "-d", "--name", name, self.image, "/bin/sleep", "infinity")
            yield names
        finally:
            subprocess.run([self.client, "-H", self.host, "rm", "-f", *names], capture_output=True, check=False)


@contextmanager
def engine(host: str | None, folder: Path, root: Path | None) -> Iterator[Engine]:
    """An engine with an image of the root file system at ``root``. Raises :class:`NoEngine` if there is none."""
    client = find_client()
    if root is None:
        raise NoEngine("there is no root file system to make an image of: give one with --template")
    host = host or os.environ.get("DOCKER_HOST")
    if host is not None:
        with _imported(client, host, root) as found:
            yield found
        return
    with _own_daemon(client, folder / "docker") as started, _imported(client, started, root) as found:
        yield found


def find_client() -> str:
    """Docker's command line program."""
    client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else shutil.which("docker")
    if client is None:
        raise NoEngine("Docker is not installed (Debian: apt install docker.io)")
    return client


@contextmanager
def _imported(client: str, host: str, root: Path) -> Iterator[Engine]:
    version = _docker(client, host, "version", "--format", "{{.Server.Version}}")
    image = f"paddock-bench:{secrets.token_hex(4)}"
    tar = ["tar", "-C", str(root), "--exclude=./dev/*", "--numeric-owner", "-c", "."]
    with subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
        made = subprocess.run(
            [client, "-H", host, "import", "-", image], stdin=packed.stdout, capture_output=True, text=True, check=False
        )
    if made.returncode or packed.returncode:
        raise NoEngine(f"the image could not be made: {made.stderr.strip()}")
    try:
        yield Engine(client, host, version, image)
    finally:
        _docker(client, host, "rmi", "-f", image)


@contextmanager
def _own_daemon(client: str, folder: Path) -> Iterator[str]:
    daemon = shutil.which("dockerd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if daemon is None or os.geteuid() != 0:
        raise NoEngine("no Docker engine was named (--docker, DOCKER_HOST), and none can be started here")
    folder.mkdir()
    host = f"unix://{folder}/docker.sock"
    places = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([daemon, f"--host={host}", *places], stdout=log, stderr=log)
    try:
        _wait_for(client, host, process, folder / "log")
        yield host
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)


def _wait_for(client: str, host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run([client, "-H", host, "version"], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise NoEngine(f"dockerd did not start: {''.join(last)[-300:]}")
        time.sleep(0.1)


def _docker(client: str, host: str, *words: str) -> str:
    done = subprocess.run([client, "-H", host, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEngine(f"docker {words[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()
