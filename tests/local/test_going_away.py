"""What a server on the local provider made goes with its home: by ``rm -rf``, and by ``paddock destroy``."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from paddock.client import SyncSandboxClient
from paddock.providers.common.record import RunningProcess, SandboxRecord
from tests.e2b.server import PaddockServer
from tests.local import traces
from tests.local.place import rm_rf
from tests.support.waiting import until

COMMAND = (sys.executable, "-c", "from paddock.cli.app import main; main()")


def all_running(home: Path) -> list[RunningProcess]:
    """Sandboxes and what stands ready."""
    found = []
    for folder in (*(home / "local/sandboxes").iterdir(), *(home / "local/warm").iterdir()):
        record = SandboxRecord.load(folder)
        if record is not None and record.running is not None:
            found.append(record.running)
    return found


async def nothing_left(home: Path, ran: list[RunningProcess]) -> None:
    await until(lambda: not any(one.alive() for one in ran))
    await until(lambda: not traces._loops(home) and not traces._claims(home))
    groups = {path for one in ran if one.group is not None for path in one.group.paths()}
    await until(lambda: not any(path.exists() for path in groups))


async def test_a_killed_server_leaves_nothing_after_rm_and_destroy(tmp_path: Path) -> None:
    """One sandbox runs, one is paused, and one machine stands ready."""
    home = tmp_path / "home"
    server = PaddockServer(home, PADDOCK_POOL_SIZE="1", PADDOCK_POOL_MAX="1")
    await asyncio.to_thread(server.start)
    with SyncSandboxClient(server.url, api_key=server.key) as client:
        client.create_sandbox("alice")
        paused = client.create_sandbox("alice").sandbox_id
        client.pause_sandbox(paused)
    await until(lambda: any((home / "local/warm").iterdir()))
    server.kill()
    ran, removed = all_running(home), home / "local/sandboxes" / paused
    assert len(ran) == 3
    ends = SandboxRecord.load(removed)
    assert ends is not None and ends.running is not None
    rm_rf(removed)
    await nothing_left(removed, [ends.running])
    assert sum(one.alive() for one in ran) == 2

    environment = {**os.environ, "PADDOCK_HOME": str(home)}
    done = await asyncio.to_thread(
        subprocess.run, (*COMMAND, "destroy", "--yes", "--json"), env=environment, capture_output=True, timeout=100
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["sandboxes"] == 1
    assert [path.name for path in home.iterdir()] == ["log"], "which the test has put there"
    await nothing_left(home, ran)
