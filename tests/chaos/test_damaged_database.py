"""A database that is damaged beyond use, and brought back from a copy as docs/configuration.md says."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2b.server import PaddockServer, delete_all
from tests.local.place import as_root
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, as_root]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PaddockServer]:
    server = PaddockServer(
        tmp_path / "home",
        PADDOCK_RECONCILE_INTERVAL="0.5",
        PADDOCK_POOL_SIZE="0",
        PADDOCK_POOL_MAX="0",
        PADDOCK_DEFAULT_DISK_MB="64",
    )
    server.start()
    try:
        yield server
        delete_all(server)
    finally:
        server.stop()


async def test_sandboxes_outlive_a_damaged_database_and_are_found_again(server: PaddockServer, tmp_path: Path) -> None:
    database, copy = server.home / "paddock.db", tmp_path / "copy.db"
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=60) as client:
        kept, gone = made(client), made(client)
        says(client, kept, "echo kept > /workspace/file")
        back_up(database, copy)
        assert client.delete(f"/sandboxes/{gone}").status_code == 200
        younger = made(client)
        says(client, younger, "echo younger > /workspace/file")
        machines = folders(server)

        server.kill()
        damage(database)
        refused = start(server.home)
        assert refused.returncode == 1, refused.stderr
        assert "Traceback" not in refused.stderr
        said = " ".join(refused.stderr.split())
        assert "is damaged" in said, said
        assert "malformed" in said, said
        assert folders(server) == machines, "a server that cannot start leaves everything as it is"

        for file in server.home.glob("paddock.db-*"):
            file.unlink()
        shutil.copyfile(copy, database)
        server.start()
        assert says(client, kept, "cat /workspace/file") == "kept\n"
        await until(lambda: status(client, younger) == "running")
        assert says(client, younger, "cat /workspace/file") == "younger\n", "made after the copy: adopted"
        await until(lambda: status(client, gone) == "failed")
        assert client.delete(f"/sandboxes/{gone}").status_code == 200
        assert says(client, made(client), "echo new") == "new\n"


def made(client: httpx.Client) -> str:
    answer = client.post("/sandboxes/create", json={"user_id": "alice"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sandbox_id"])


def says(client: httpx.Client, sandbox_id: str, command: str) -> str:
    answer = client.post("/sandboxes/run-command", json={"sandbox_id": sandbox_id, "command": command})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])


def status(client: httpx.Client, sandbox_id: str) -> Any:
    return client.get(f"/sandboxes/{sandbox_id}/status").json().get("status")


def back_up(database: Path, copy: Path) -> None:
    """While the server runs."""
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def start(home: Path) -> subprocess.CompletedProcess[str]:
    """``paddock up``, which is expected to end."""
    return subprocess.run(
        [sys.executable, "-c", "from paddock.cli.app import main; main()", "up", "--port", "0"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PADDOCK_HOME": str(home), "SANDBOX_PROVIDER": "local"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def folders(server: PaddockServer) -> set[str]:
    return {path.name for path in (server.home / "local/sandboxes").iterdir()}


def damage(database: Path) -> None:
    """Every page but the first is overwritten, as by a broken disk."""
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (database.stat().st_size - 4096))
