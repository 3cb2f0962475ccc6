"""The server as a process: it starts, it logs, it stops when it is told to."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support import local_home
from tests.support.waiting import PATIENCE_S

SERVE = "from paddock.api.server import serve; from paddock.settings import Settings; serve(Settings(_env_file=None))"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(home: Path, port: int, before: str = "") -> subprocess.Popen[str]:
    """``before``: what the shell does that becomes the server."""
    local_home.lay_out(home)
    env = {"PADDOCK_HOME": str(home), "PORT": str(port), "SANDBOX_PROVIDER": "local", "PATH": "/usr/bin:/bin"}
    command = ["/bin/sh", "-c", f'{before}exec "$@"', "sh", sys.executable, "-c", SERVE]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def wait_until_up(server: subprocess.Popen[str], port: int) -> httpx.Response:
    while server.poll() is None:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", headers={"X-Request-Id": "first-look"})
        except httpx.ConnectError:
            time.sleep(0.05)
    raise AssertionError(server.communicate()[1])


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_server_starts_logs_json_and_stops_on_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
    port = free_port()
    server = start(tmp_path, port)
    assert wait_until_up(server, port).json()["status"] == "ok"
    server.send_signal(stop)
    _, logged = server.communicate(timeout=PATIENCE_S)
    lines = [json.loads(line) for line in logged.splitlines()]
    assert all({"event", "level", "timestamp"} <= set(line) for line in lines)
    assert [line["path"] for line in lines if line.get("request_id") == "first-look"] == ["/health"]
    assert server.returncode in (0, -stop)


def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    port = free_port()
    first = start(tmp_path, port)
    try:
        wait_until_up(first, port)
        second = start(tmp_path, free_port())
        _, logged = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert "Another Paddock server" in logged
    finally:
        first.terminate()
        first.communicate(timeout=PATIENCE_S)


def test_a_server_takes_all_the_descriptors_that_it_may_have(tmp_path: Path) -> None:
    """Most systems give 1,024 at first, which a few hundred sandboxes need."""
    port = free_port()
    server = start(tmp_path, port, before="ulimit -Sn 256; ulimit -Hn 2000; ")
    try:
        wait_until_up(server, port)
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        assert re.search(r"Max open files +2000 +2000 ", limits)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)
