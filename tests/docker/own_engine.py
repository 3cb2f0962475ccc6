"""An engine of the test's own, which may be stopped, killed and started again, with images of the shared one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from paddock.providers.docker.address import Address
from tests.docker import engine

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
                pytest.skip(f"an engine of our own cannot be started here: {said}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_SECONDS)
            self._process = None

    def end(self) -> None:
        """With the containerd that a killed engine left: by its own number, as it wrote it down."""
        self.stop()
        below = self.folder / "exec" / "containerd" / "containerd.pid"
        if below.exists():
            left = int(below.read_text())
            if str(self.folder) in _command_line(left):
                os.kill(left, signal.SIGTERM)
        subprocess.run(["umount", "-R", "-l", str(self.folder / "data")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> httpx.Client:
        return engine.connection(self.address)

    def take_image(self, name: str) -> None:
        """From the shared engine."""
        packed = engine.call("GET", f"/images/{name}/get").content
        with self.client() as client:
            client.post("/images/load", content=packed).raise_for_status()

    def containers(self) -> list[str]:
        with self.client() as client:
            return [found["Id"] for found in client.get("/containers/json", params={"all": 1}).json()]

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/_ping", timeout=5).status_code == 200
        except (httpx.HTTPError, OSError):
            return False


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
