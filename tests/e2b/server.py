"""``paddock up`` as its users run it, in a process of its own, which tests may kill and start again in mid-flight."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from paddock.client import SyncSandboxClient
from tests.support import leaks
from tests.support.stalls import assert_loop_was_free

_START_SECONDS = 240.0
_STOP_SECONDS = 60.0
_OUTSIDE = "127.0.0.9"
"""An address of this host that sandboxes are let through to."""
_COMMAND = (sys.executable, "-c", "from paddock.cli.app import main; main()")
_LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); from paddock.cli.app import main; main()"
)


class PaddockServer:
    """One server on one port; it may die and come back, its sandboxes stay."""

    def __init__(
        self,
        home: Path,
        *,
        within: Sequence[str] = (),
        descriptors: int | None = None,
        published: bool = False,
        **settings: str,
    ) -> None:
        """``within``: a command that starts the server's in its own surroundings. ``descriptors``: as many open files
        as it may have. ``published``: other servers are told where it is reached."""
        self.home = home
        self._within = within
        self._command = _COMMAND if descriptors is None else (sys.executable, "-c", _LIMITED.format(descriptors))
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = {
            "PADDOCK_HOME": str(home),
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "SANDBOX_PROVIDER": "local",
            "PADDOCK_LOG_LEVEL": "warning",
            "PADDOCK_SCHEDULER_INTERVAL": "0.1",
            "PADDOCK_QUOTA_LIVE": "0",
            "PADDOCK_QUOTA_RPS": "0",
            **({"PADDOCK_INTERNAL_URL": self.url} if published else {}),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()

    @property
    def key(self) -> str:
        return (self.home / "key").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.home / "log"

    def start(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, *self._command, "--json", "up"],
                env=_plain() | self._settings,
                cwd=self.home,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start: {self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Without a word."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_STOP_SECONDS)

    def restart(self) -> None:
        with self._changing:
            self.kill()
            self.start()

    def interrupt(self) -> int:
        """As Ctrl-C does; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(_STOP_SECONDS)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        leaks.check_home(self.home, self.log.read_text(errors="replace"))
        assert_loop_was_free(self.log)


@contextmanager
def hosted(home: Path) -> Iterator[dict[str, str]]:
    """The variables by which an SDK finds a server that runs meanwhile, and by which a test finds what is beside it."""
    server = PaddockServer(home, PADDOCK_EGRESS_REACHABLE=f"{_OUTSIDE}/32")
    server.start()
    try:
        with _answering("127.0.0.1", _Lever, server) as lever, _answering(_OUTSIDE, _Site, server) as site:
            yield {
                "E2B_API_URL": f"{server.url}/e2b",
                "E2B_SANDBOX_URL": server.url,
                "E2B_API_KEY": server.key,
                "PADDOCK_TEST_LEVER": lever,
                "PADDOCK_TEST_SITE": site,
            }
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


class _Quiet(BaseHTTPRequestHandler):
    server: _Listener

    def log_message(self, *words: object) -> None:
        """Nothing."""


class _Lever(_Quiet):
    """Restarts the server for a test in another process; it answers when the new one listens."""

    def do_POST(self) -> None:
        self.server.paddock.restart()
        self.send_response(204)
        self.end_headers()


class _Site(_Quiet):
    """All of the internet that sandboxes may reach here."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")


class _Listener(ThreadingHTTPServer):
    def __init__(self, address: str, handler: type[_Quiet], paddock: PaddockServer) -> None:
        self.paddock = paddock
        super().__init__((address, 0), handler)


@contextmanager
def _answering(address: str, handler: type[_Quiet], paddock: PaddockServer) -> Iterator[str]:
    with _Listener(address, handler, paddock) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield f"http://{address}:{listener.server_address[1]}"
        listener.shutdown()


def delete_all(server: PaddockServer) -> None:
    """Sandboxes outlive their server; ours must not."""
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        for sandbox in list(client.iter_sandboxes()):
            client.delete_sandbox(sandbox.sandbox_id)


def _plain() -> dict[str, str]:
    """Our environment without what would configure the server."""
    names = ("PADDOCK_", "DATABASE_", "SANDBOX_", "E2B_")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
