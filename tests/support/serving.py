"""A server on the ``local`` provider in a process of its own, for as long as a test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer


@contextmanager
def serving(home: Path, **settings: Any) -> Iterator[PaddockServer]:
    """Sandboxes outlive their server; those that were made here do not."""
    server = PaddockServer(home, **settings)
    try:
        server.start()
        yield server
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            for sandbox in list(client.iter_sandboxes()):
                client.delete_sandbox(sandbox.sandbox_id)
    finally:
        server.stop()
