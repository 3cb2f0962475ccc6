"""A network namespace as a sandbox has it, for tests that are not content with the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S


class Namespace:
    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.settimeout(PATIENCE_S)

    async def listen(self, *sockets: tuple[str, str, int]) -> list[socket.socket]:
        """Sockets made inside, each ``(tcp|udp, address, port)``."""
        return await asyncio.to_thread(self._listen, sockets)

    async def run(
        self, *argv: str, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self._run, argv, env or {}, stdin)

    async def python(self, code: str) -> str:
        done = await self.run(sys.executable, "-I", "-S", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _listen(self, sockets: Sequence[tuple[str, str, int]]) -> list[socket.socket]:
        self._link.sendall(json.dumps({"do": "listen", "sockets": sockets}).encode() + b"\n")
        _, descriptors, _, _ = socket.recv_fds(self._link, 1, len(sockets))
        return [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def _run(self, argv: Sequence[str], env: Mapping[str, str], stdin: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"} | dict(env)
        asked = {"do": "run", "argv": argv, "env": environment, "stdin": stdin}
        self._link.sendall(json.dumps(asked).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            more = self._link.recv(65536)
            assert more, "the process inside the namespace has gone"
            answer += more
        code, out, err = json.loads(answer)
        return subprocess.CompletedProcess(argv, code, out, err)


@contextlib.contextmanager
def new_namespace() -> Iterator[Namespace]:
    """Skips the test where this machine gives none."""
    flags = ["-n"] if os.geteuid() == 0 else ["-Urn"]
    if shutil.which("unshare") is None or subprocess.run(["unshare", *flags, "true"], check=False).returncode:
        pytest.skip("needs a network namespace: root, or user namespaces for everybody")
    ours, theirs = socket.socketpair()
    script = str(Path(__file__).with_name("inside.py"))
    argv = ["unshare", *flags, sys.executable, "-I", "-S", script, str(theirs.fileno())]
    with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            yield Namespace(ours)
        finally:
            ours.close()
            process.kill()
