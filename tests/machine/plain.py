"""The real agent in its plain mode: by itself on the host."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paddock.machine.agent import AgentMachine

SOURCES = Path(__file__).parents[2] / "agent"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def built_agent() -> Path:
    """Made from the sources as they are; several test processes wait for each other."""
    with (SOURCES / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", SOURCES, "build/paddock-agent"], check=True, capture_output=True)
    return SOURCES / "build" / "paddock-agent"


class PlainAgent:
    """A running agent and the socket that leads to it."""

    def __init__(self, home: Path) -> None:
        self.socket_path = home / "agent.sock"
        self.state = home / "state"
        self.state.mkdir(exist_ok=True)
        self.socket_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with _short_path(self.socket_path) as path:
                listener.bind(path)
            listener.listen(32)
            state = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY)
            try:
                serve = ["serve", "--listen", str(listener.fileno()), "--state", str(state), "--mode", "plain"]
                self.process = subprocess.Popen(
                    [str(built_agent()), *serve],
                    pass_fds=[listener.fileno(), state],
                    stdin=subprocess.DEVNULL,
                    env={},
                )
            finally:
                os.close(state)

    async def connect(self) -> socket.socket:
        return connect(self.socket_path)

    def machine(self, environment: Mapping[str, str] = ENVIRONMENT) -> AgentMachine:
        return AgentMachine("tester_00000000", self.connect, lambda: environment)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def connect(path: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(path) as short:
            end.connect(short)
    except BaseException:
        end.close()
        raise
    return end


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """The address of a unix socket has room for 107 bytes; the folders of tests may have longer names."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
