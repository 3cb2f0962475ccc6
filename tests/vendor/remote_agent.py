"""An agent as it runs in a vendor's machine: started by a command, in the background, behind a port of this host."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint
from paddock.machine.agent.machine import AgentMachine

ORDINARY = 1000


@dataclass
class RemoteAgent:
    binary: Path
    folder: Path
    mode: str
    uid: int
    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    pid: int = 0

    def command(self) -> list[str]:
        options = {"port": self.port, "state": self.folder / "state", "token": self.folder / "token"}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [str(self.binary), "remote", *words, "--mode", self.mode]

    def start(self) -> None:
        """A free port may be taken by somebody else before the agent has it: then another one."""
        self.show_token(self.token)
        for _ in range(20):
            self.port = _free_port()
            done = subprocess.run(self.command(), user=self.uid, capture_output=True, text=True, timeout=60)
            if done.returncode != 3:
                break
        assert done.returncode == 0, done.stderr
        self.pid = self._find()

    def show_token(self, token: str) -> None:
        path = self.folder / "token"
        path.write_text(token + "\n")
        os.chown(path, self.uid, self.uid)

    def endpoint(self, token: str | None = None) -> BridgeEndpoint:
        return BridgeEndpoint(f"ws://127.0.0.1:{self.port}", {TOKEN_HEADER: self.token if token is None else token})

    @contextlib.asynccontextmanager
    async def machine(self):  # type: ignore[no-untyped-def]
        async def endpoint() -> BridgeEndpoint:
            return self.endpoint()

        bridge = AgentBridge(endpoint)
        environment = {"PATH": os.environ["PATH"]}
        machine = AgentMachine("far_away", bridge.link, lambda: environment, bridge=bridge, reply_seconds=60)
        try:
            yield machine
        finally:
            await machine.aclose()
            await bridge.close()

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 60)

    def stop(self) -> None:
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(child), signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)

    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}/cmdline").exists() and self._find() == self.pid

    def resident(self) -> int:
        """Bytes of memory that it holds."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))

    def _find(self) -> int:
        wanted = b"\0".join(word.encode() for word in self.command())
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(wanted):
                    return int(folder.name)
        return 0


@contextlib.contextmanager
def a_remote_agent(binary: Path, mode: str, uid: int) -> Iterator[RemoteAgent]:
    folder = Path("/tmp") / f"paddock-remote-{uuid.uuid4().hex[:12]}"  # where every user may come
    folder.mkdir(mode=0o755)
    os.chown(folder, uid, uid)
    reachable = folder / "agent"
    shutil.copy(binary, reachable)
    agent = RemoteAgent(reachable, folder, mode, uid)
    try:
        agent.start()
        yield agent
        assert agent.alive(), "the agent has ended by itself"
    finally:
        if agent.pid and agent.alive():
            agent.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
