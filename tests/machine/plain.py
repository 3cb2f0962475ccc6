"""The real agent in its plain mode: by itself on the host, or as PID 1 of a bubblewrap view of a sandbox's files.

The latter is a Provider as small as it can be, so that the machine can be held to what every machine promises.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.base import Machine
from paddock.providers.base import MachineInfo, MachineState, Provider, SandboxSpec
from paddock.providers.fake.view import bubblewrap_command, bubblewrap_path, make_root

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

    def __init__(self, home: Path, command: Callable[[list[str]], list[str]] = lambda serve: serve) -> None:
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
                    command([str(built_agent()), *serve]),
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


class PlainProvider(Provider):
    """A folder and a bubblewrap per sandbox. Several on one home see the same sandboxes, as several servers would."""

    name = "plain"
    _agents: dict[Path, PlainAgent] = {}  # noqa: RUF012 - they outlive each provider, as real ones do

    def __init__(self, home: Path) -> None:
        self._home = home
        self._machines: dict[str, AgentMachine] = {}

    async def templates(self) -> list[str]:
        return ["host"]

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        folder = self._home / spec.sandbox_id
        folder.mkdir(parents=True)
        make_root(folder / "root")
        (folder / "root/run/agent").touch()
        self._agents[folder] = PlainAgent(folder, lambda serve: _inside(folder / "root", serve))
        self._environment = {**ENVIRONMENT, **spec.env}
        (folder / "env").write_text("\0".join(f"{name}={value}" for name, value in self._environment.items()))
        return self._found(folder)

    async def inspect(self, sandbox_id: str) -> MachineInfo | None:
        folder = self._home / sandbox_id
        return self._found(folder) if folder in self._agents else None

    async def list(self) -> list[MachineInfo]:
        return [self._found(folder) for folder in self._agents if folder.parent == self._home]

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        assert keep_memory, "this one has nothing to start afresh from"
        await (await self._attached(sandbox_id)).stop_all()

    async def resume(self, sandbox_id: str) -> None:
        await (await self._attached(sandbox_id)).continue_all()

    async def delete(self, sandbox_id: str) -> None:
        if machine := self._machines.pop(sandbox_id, None):
            await machine.aclose()
        if agent := self._agents.pop(self._home / sandbox_id, None):
            await asyncio.to_thread(agent.stop)

    async def attach(self, sandbox_id: str) -> Machine:
        return await self._attached(sandbox_id)

    async def close(self) -> None:
        for machine in self._machines.values():
            await machine.aclose()
        self._machines.clear()

    async def _attached(self, sandbox_id: str) -> AgentMachine:
        folder = self._home / sandbox_id
        agent = self._agents.get(folder)
        if agent is None:
            raise errors.SandboxNotFound.by_id(sandbox_id)
        if sandbox_id not in self._machines:
            pairs = (line.partition("=") for line in (folder / "env").read_text().split("\0"))
            environment = {name: value for name, _, value in pairs}
            self._machines[sandbox_id] = AgentMachine(sandbox_id, agent.connect, lambda: environment)
        return self._machines[sandbox_id]

    @staticmethod
    def _found(folder: Path) -> MachineInfo:
        return MachineInfo(folder.name, MachineState.RUNNING, str(folder), time.time())


def _inside(root: Path, serve: list[str]) -> list[str]:
    bubblewrap = bubblewrap_path()
    assert bubblewrap is not None
    view = bubblewrap_command(bubblewrap, root)
    view = view[: view.index("--", 1)]
    return [*view, "--as-pid-1", "--ro-bind", serve[0], "/run/agent", "--", "/run/agent", *serve[1:]]
