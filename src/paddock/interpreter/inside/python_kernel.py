"""A Python kernel: ipykernel, forked by the fork server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path

from .fork_server import BEGUN, BEGUN_FILE, ENV, FAILURE
from .fork_server_client import ForkServerClient, ForkServerProcess, KernelProcess
from .jupyter_kernel import JupyterKernel
from .outputs import Output


class PythonKernel(JupyterKernel):
    language = "Python"

    def __init__(self, fork_server: ForkServerClient, cwd: str) -> None:
        super().__init__(cwd)
        self._fork_server = fork_server
        self._starting: asyncio.Task[ForkServerProcess] | None = None
        self._notes = ""

    async def start(self) -> None:
        # The fork server starts while jupyter-client is imported; both take a good part of a second.
        starting = self._starting = asyncio.ensure_future(self._fork_server.ready())
        try:
            await asyncio.sleep(0)
            await super().start()
        finally:
            starting.cancel()

    async def spawn(self, connection_file: str) -> KernelProcess:
        self._notes = os.path.dirname(connection_file)
        if self._starting is not None:
            await self._starting
        return await self._fork_server.spawn(connection_file, self._cwd)

    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        note = os.path.join(self._notes, BEGUN_FILE)
        with suppress(FileNotFoundError):
            os.unlink(note)
        return self.ask(code, {ENV: dict(env), BEGUN: note})

    def began(self) -> bool:
        return os.path.exists(os.path.join(self._notes, BEGUN_FILE))

    def failure(self) -> str:
        with suppress(OSError):
            return Path(self._notes, FAILURE).read_text(encoding="utf-8").strip()
        return ""
