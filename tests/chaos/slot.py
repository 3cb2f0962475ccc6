"""Where a real server process lives, dies and comes back, seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx

from tests.chaos import server

PRELOADED = ["paddock.api.app", "paddock.providers.fake", "paddock.providers.local", "uvicorn", "alembic.command"]


class Slot:
    """A place for one server process: started, killed, started again on the same port."""

    def __init__(self, environment: dict[str, str], grave: Path) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = environment
        self._grave = grave
        self._process: BaseProcess | None = None

    async def start(self, fuse: int | None) -> None:
        context = multiprocessing.get_context("forkserver")
        # What takes long to import is imported once; each server is then forked from that, within milliseconds.
        context.set_forkserver_preload(PRELOADED)
        self._grave.unlink(missing_ok=True)
        self._process = context.Process(
            target=server.run, args=(self._environment, self.port, fuse, self._grave), daemon=True
        )
        self._process.start()
        async with httpx.AsyncClient() as client:
            while self.alive:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{self.url}/health")).status_code == 200:
                        return
                await asyncio.sleep(0.01)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.is_alive() else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    async def dead(self, within: float) -> str:
        """Wait for the fuse; whoever is still alive then is killed from outside, wherever it is. Tells the place."""
        assert self._process is not None and self._process.pid is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._process.is_alive():
                    await asyncio.sleep(0.01)
        if self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()
        return self._grave.read_text() if self._grave.exists() else "at any moment, from outside"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
