"""A git repository that sandboxes can clone: on an address of this host that their server lets them through to."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ADDRESS = "127.0.0.9"
REACHABLE = f"{ADDRESS}/32"
"""As `PADDOCK_EGRESS_REACHABLE`."""
FILES = {"greeting": "hello from the repository\n"}
_NOBODYS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
_AUTHOR = ("-c", "user.name=tester", "-c", "user.email=tester@example.test")


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def served_repository(folder: Path) -> Iterator[str]:
    """Its URL, which ends in ``/project.git``. Skips where this machine has no git."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git here")
    work, bare = folder / "work", folder / "served" / "project.git"
    work.mkdir(parents=True)
    for name, content in FILES.items():
        (work / name).write_text(content)

    def run(*words: str | Path) -> None:
        subprocess.run([git, *words], check=True, capture_output=True, env={**os.environ, **_NOBODYS}, timeout=60)

    run("-C", work, "init", "-q")
    run("-C", work, "add", ".")
    run("-C", work, *_AUTHOR, "commit", "-q", "-m", "first")
    run("clone", "-q", "--bare", work, bare)
    run("-C", bare, "update-server-info")  # plain files are all that a clone then asks for
    handler = functools.partial(_Silent, directory=str(bare.parent))
    with ThreadingHTTPServer((ADDRESS, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{ADDRESS}:{server.server_address[1]}/{bare.name}"
        server.shutdown()
