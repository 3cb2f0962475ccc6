"""Where a real server process lives, dies and comes back, seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx

from tests.chaos import server
from tests.chaos.clock import SharedClock
from tests.chaos.timeline import Spans

PRELOADED = [
    "tests.chaos.server",
    "paddock.providers.local.host",
    "alembic.config",
    "anyio._backends._asyncio",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "asyncpg",
]
"""With what they import, all that a server has imported when it answers for the first time."""

_MORE_S = 5.0


class Slot:
    """A place for one server process: started, killed, started again on the same port."""

    def __init__(
        self,
        environment: dict[str, str],
        number: int,
        folder: Path,
        clock: SharedClock | None,
        *,
        published: bool = False,
    ) -> None:
        """``clock``: of a server that goes on counting when the clock is set. It is neither started nor killed
        meanwhile, because one that was not there cannot know. ``published``: others are told where it is reached."""
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.place = server.Place(
            number, self.port, folder / f"grave-{number}", folder / "clock", folder / f"log-{number}"
        )
        self.served, self.stood_still = Spans(), Spans()
        self.home = Path(environment["PADDOCK_HOME"])
        self._environment = environment | ({"PADDOCK_INTERNAL_URL": self.url} if published else {})
        self._steady = asyncio.Lock() if clock is None else clock.steady
        self._process: BaseProcess | None = None

    async def start(self, fuse: server.Length | None) -> bool:
        """Whether it served. One with a fuse may die of it before that; one without is waited for until it is well."""
        async with self._steady:
            context = multiprocessing.get_context("forkserver")
            # What takes long to import is imported once; each server is then forked from that, within milliseconds.
            context.set_forkserver_preload(PRELOADED)
            self.place.grave.unlink(missing_ok=True)
            self._process = context.Process(target=server.run, args=(self._environment, self.place, fuse), daemon=True)
            self._process.start()
            async with httpx.AsyncClient(verify=False) as client:  # the certificates would take longer than the start
                while self.alive:
                    with contextlib.suppress(httpx.TransportError):
                        if (await client.get(f"{self.url}/health")).status_code == 200 or fuse is not None:
                            self.served.begin()
                            return True
                    await asyncio.sleep(0.01)
        return False

    @property
    def serves(self) -> bool:
        """It has answered, and lives."""
        return self.alive and self.served.lasts

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.is_alive() else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def last_errors(self) -> str:
        return self.place.log.read_text(errors="replace")[-4000:] if self.place.log.exists() else ""

    @property
    def gave_up(self) -> bool:
        """It ended by itself."""
        return self._process is not None and self._process.exitcode not in (None, -signal.SIGKILL)

    async def dead(self, within: float, useful: Callable[[], bool] = lambda: True) -> str:
        """Wait for the fuse; whoever is still alive then is killed from outside, wherever it is. Tells the place.

        ``useful``: it has done enough by now. A slow machine has some seconds more for that."""
        assert self._process is not None and self._process.pid is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within + _MORE_S) as patience:
                while self._process.is_alive():
                    now = asyncio.get_running_loop().time()
                    if useful() and now >= (patience.when() or now) - _MORE_S:
                        break
                    await asyncio.sleep(0.01)
        async with self._steady:
            if self._process.is_alive():
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
        self.served.end()
        return self.place.grave.read_text() if self.place.grave.exists() else "at any moment, from outside"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
