"""A real server in a thread of this process, for clients that need a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.accounts.first_key import first_key
from paddock.api.app import create_app
from paddock.api.server import make_server
from paddock.settings import Settings
from tests.support import local_home
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    key: str
    settings: Settings


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def running_server(home: Path, *, keep: bool = False, **options: Any) -> Iterator[RunningServer]:
    """``keep``: its sandboxes, for another server on the same home."""
    chosen = {"SANDBOX_PROVIDER": "local", "PADDOCK_POOL_SIZE": 0, **options}
    local_home.lay_out(home)
    settings = Settings(PADDOCK_HOME=home, PORT=free_port(), _env_file=None, **chosen)
    key = asyncio.run(first_key(settings)).key
    server = make_server(create_app(settings), settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.01)
        yield RunningServer(f"http://127.0.0.1:{settings.port}", key, settings)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"
        if not keep:
            asyncio.run(local_home.clear(home))
