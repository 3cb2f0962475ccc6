"""The files of Paddock that a create with a command executes, from the connection to the answer.

    python -m benchmarks.walk_files

This is the first walk of docs/architecture.md: a server with the local provider in this process, a warm machine, a new
connection. A file counts if one of its functions is called in each of several walks.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import paddock
from benchmarks.wire import Wire, request
from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.api.server import make_server
from paddock.server.context import ServerContext
from paddock.settings import Settings

_SOURCE = str(Path(paddock.__file__).parent) + os.sep
_WALKS = 5
_WORKERS = ("asyncio", "sqlite")
_REST_S = 2.0
"""Before a walk: what the start, or the last create, left to do in the background is not part of it."""


class Trace:
    """Files below ``src/paddock`` whose functions are called while it is on: in callbacks of the event loop, in tasks
    begun since, and in worker threads. Tasks from before are the server's background loops."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        self._background: set[asyncio.Task[Any]] = set()
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        files, name = self._files, frame.f_code.co_filename
        if event == "call" and files is not None and name.startswith(_SOURCE) and self._is_of_the_walk():
            files.add(name.removeprefix(_SOURCE))

    def _is_of_the_walk(self) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return threading.current_thread().name.startswith(_WORKERS)
        return asyncio.current_task() not in self._background

    @contextmanager
    def on(self) -> Iterator[set[str]]:
        files: set[str] = set()
        self._background = asyncio.all_tasks() - {asyncio.current_task()}
        self._files = files
        try:
            yield files
        finally:
            self._files = None


async def _walk(port: int, key: str) -> None:
    wire = await Wire.open(port)
    body = {"user_id": "walk", "command": "/bin/echo hi"}
    await wire.ask(request("POST", "/sandboxes/create", key, body))
    wire.close()


async def _trace(settings: Settings) -> Counter[str]:
    key = (await first_key(settings)).key
    trace = Trace()
    app = create_app(settings)
    context: ServerContext = app.state.context
    server = make_server(app, settings)
    serving = asyncio.create_task(server.serve())
    found: Counter[str] = Counter()
    try:
        for walk in range(_WALKS + 1):
            await asyncio.sleep(_REST_S)
            await context.pool.tick()
            with trace.on() as files:
                await _walk(settings.port, key)
            if walk:  # the first one loads what is loaded on demand
                found.update(files)
    finally:
        for provider in context.providers.values():
            for machine in await provider.list():
                await provider.delete(machine.sandbox_id)
        server.should_exit = True
        await serving
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        options: dict[str, Any] = {"PADDOCK_HOME": Path(home), "PORT": port, "SANDBOX_PROVIDER": "local"}
        settings = Settings(**options)
        found = asyncio.run(_trace(settings))
    files = sorted(name for name, count in found.items() if count == _WALKS)
    packages = Counter(name.rpartition(os.sep)[0] or "." for name in files)
    print("\n".join(files))
    print(f"\n{len(files)} files: {', '.join(f'{name} {count}' for name, count in sorted(packages.items()))}")


if __name__ == "__main__":
    main()
