"""An engine of the test's own, which may be stopped, killed and started again."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import httpx
import pytest

from paddock.providers.docker.address import Address
from tests.docker import engine

IMAGE = "paddock-test-small:1"
_PROGRAMS = ("sh", "cat", "sleep", "ps", "grep")
_SECONDS = 90.0


class OwnEngine:
    """Skips where none can be started. ``folder`` is short, since there are sockets below it."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("dockerd")
        if program is None or os.getuid() != 0:
            pytest.skip("no dockerd here, or not root, to start an engine with")
        self.folder = folder
        self.address = Address.unix(str(folder / "docker.sock"))
        self._command = [
            program,
            *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"), "-p", str(folder / "pid")),
            *("-H", f"unix://{self.address.socket}", "--bridge=none", "--iptables=false", "--ip6tables=false"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._worked = False

    def start(self, *, live_restore: bool = False) -> None:
        (self.folder / "pid").unlink(missing_ok=True)  # of one that was killed
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *(["--live-restore"] if live_restore else [])], stdout=log, stderr=log
            )
        end = time.monotonic() + _SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                said = (self.folder / "log").read_text()[-600:]
                self.stop()
                (pytest.fail if self._worked else pytest.skip)(f"the test's own engine does not start: {said}")
            time.sleep(0.05)
        self._worked = True

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_SECONDS)
            self._process = None
        if how is signal.SIGKILL:
            self._bury()

    def _bury(self) -> None:
        """Its containerd dies with it; where nobody reaps that, its number would be taken for one that runs."""
        end = time.monotonic() + _SECONDS
        while _runs(number := self._below()) and time.monotonic() < end:
            time.sleep(0.02)
        if number:
            (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def _below(self) -> int:
        """The engine's containerd; 0: there is none."""
        try:
            return int((self.folder / "exec" / "containerd" / "containerd.pid").read_text())
        except (OSError, ValueError):
            return 0

    def end(self) -> None:
        self.stop()
        subprocess.run(["umount", "-R", "-l", str(self.folder / "data")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> httpx.Client:
        return engine.connection(self.address)

    def make_image(self) -> None:
        """A few programs of this host with the libraries that they need: little to bring, and enough for a shell."""
        programs = [path for name in _PROGRAMS if (path := shutil.which(name)) is not None]
        needed = {path for program in programs for path in _libraries(program)}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
            for program in programs:
                archive.add(program, f"bin/{Path(program).name}")
            for path in sorted(needed):
                archive.add(path, path.lstrip("/"))
        repository, _, tag = IMAGE.partition(":")
        with self.client() as client:
            given = {"fromSrc": "-", "repo": repository, "tag": tag}
            client.post("/images/create", params=given, content=packed.getvalue()).raise_for_status()

    def containers(self) -> list[str]:
        with self.client() as client:
            return [found["Id"] for found in client.get("/containers/json", params={"all": 1}).json()]

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/_ping", timeout=5).status_code == 200
        except (httpx.HTTPError, OSError):
            return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _libraries(program: str) -> list[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for line in said.splitlines() for word in line.split() if word.startswith("/")]
