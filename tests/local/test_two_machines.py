"""Two machines on one PostgreSQL: each server has its own home and its own sandboxes, and knows of the other's."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from paddock.client import SyncSandboxClient
from paddock.errors import ProviderUnavailable, SandboxElsewhere, SandboxNotFound
from tests.cli.conftest import Paddock
from tests.e2b.server import PaddockServer
from tests.support.postgres import Postgres
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

_TTL_S = 5.0
_ON_ANOTHER_MACHINE = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"')


class Pair:
    def __init__(self, one: PaddockServer, two: PaddockServer) -> None:
        self.one, self.two = one, two
        self.at_one = SyncSandboxClient(one.url, api_key=one.key, retries=0)
        self.at_two = SyncSandboxClient(two.url, api_key=one.key, retries=0)


@pytest.fixture
async def pair(postgres: Postgres, tmp_path: Path) -> AsyncIterator[Pair]:
    settings = {
        "DATABASE_URL": await postgres.new_database(),
        "PADDOCK_RECONCILE_INTERVAL": "0.2",
        "PADDOCK_SERVER_TTL": str(_TTL_S),
    }
    servers = [PaddockServer(tmp_path / name, **settings) for name in ("one", "two")]
    for server in servers:
        server.start()
    made = Pair(*servers)
    try:
        yield made
    finally:
        for server, client in zip(servers, (made.at_one, made.at_two), strict=True):
            for sandbox in list(client.iter_sandboxes()):
                if sandbox.metadata.get("on") == server.home.name:
                    client.delete_sandbox(sandbox.sandbox_id)
            server.stop()


def test_a_sandbox_belongs_to_the_machine_that_made_it(pair: Pair) -> None:
    one = pair.at_one.create_sandbox("alice", metadata={"on": "one"}).sandbox_id
    two = pair.at_two.create_sandbox("bob", metadata={"on": "two"}).sandbox_id
    for client in (pair.at_one, pair.at_two):
        assert {each.sandbox_id for each in client.iter_sandboxes()} == {one, two}
        assert {client.get_status(each).status for each in (one, two)} == {"running"}

    with pytest.raises(SandboxElsewhere, match="lives on machine"):
        pair.at_two.run_command(one, "true")
    with pytest.raises(SandboxElsewhere, match="lives on machine"):
        pair.at_two.pause_sandbox(one)
    assert pair.at_one.run_command(one, "echo here").stdout == "here\n"
    assert "lives on machine" in _metrics_of_one(pair, one, 421)

    # What a deadline asks for is done by the server that can do it.
    short = pair.at_one.create_sandbox("alice", timeout=1, metadata={"on": "one"}).sandbox_id
    _until_status(pair.at_two, short, "paused")
    pair.at_two.delete_sandbox(short)
    with pytest.raises(SandboxNotFound):
        pair.at_one.run_command(short, "true")

    pair.one.kill()
    with pytest.raises(ProviderUnavailable, match="no Paddock server runs now"):
        _while_it_is_thought_alive(pair.at_two, one)
    assert "no Paddock server runs now" in _metrics_of_one(pair, one, 503)
    for each in (one, two):
        assert pair.at_two.get_status(each).status == "running"
    pair.one.start()
    assert pair.at_one.run_command(one, "echo still here").stdout == "still here\n"
    kinds = {event.type for each in (one, two) for event in pair.at_two.events(each).events}
    assert not kinds & {"sandbox.failed", "sandbox.recovered", "sandbox.adopted"}


def test_down_deletes_what_is_of_its_own_home(pair: Pair) -> None:
    pair.at_one.create_sandbox("alice", metadata={"on": "one"})
    paused = pair.at_one.create_sandbox("alice", metadata={"on": "one"}).sandbox_id
    pair.at_one.pause_sandbox(paused)
    two = pair.at_two.create_sandbox("bob", metadata={"on": "two"}).sandbox_id
    at_home = Paddock(pair.one.home)
    assert "deletes 2 sandboxes" in at_home("down", "--sandboxes", check=1).stderr

    done = at_home.json("down", "--sandboxes", "--yes")
    assert (done["stopped"], done["deleted"], done["left"]) == (pair.one.pid, 2, {})
    assert {each.sandbox_id for each in pair.at_two.iter_sandboxes()} == {two}
    assert pair.at_two.run_command(two, "echo untouched").stdout == "untouched\n"

    pair.one.start()
    pair.at_one.create_sandbox("alice", metadata={"on": "one"})
    pair.two.kill()
    done = at_home.json("down", "--sandboxes", "--yes")
    assert (done["deleted"], done["left"]) == (1, {})
    pair.two.start()
    assert pair.at_two.get_status(two).status == "running"
    assert pair.at_two.run_command(two, "echo untouched").stdout == "untouched\n"
    pair.one.start()  # for whoever clears up


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show a server the boot id of another machine")
async def test_a_home_that_another_machine_uses_and_a_copy_of_one_are_refused(
    postgres: Postgres, tmp_path: Path
) -> None:
    home, copy, boot_id = tmp_path / "home", tmp_path / "copy", tmp_path / "boot_id"
    boot_id.write_text("5c1d7a52-0000-4000-8000-000000000000\n")
    settings = {
        "DATABASE_URL": await postgres.new_database(),
        "PADDOCK_POOL_SIZE": "0",  # nothing comes and goes while the home is copied
    }
    first = PaddockServer(home, **settings)
    first.start()
    try:
        shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*.sock"))
        for taken in (home, copy):
            second = PaddockServer(taken, within=(*_ON_ANOTHER_MACHINE, str(boot_id)), **settings)
            with pytest.raises(
                RuntimeError, match=r"another machine .* uses the same PADDOCK_HOME, or a copy"
            ) as failed:
                second.start()
            assert "Traceback" not in str(failed.value)
        (copy / "node").unlink()
        second.start()
        second.stop()
    finally:
        first.stop()


def _until_status(client: SyncSandboxClient, sandbox_id: str, status: str) -> None:
    wait_until(lambda: client.get_status(sandbox_id).status == status)


def _metrics_of_one(pair: Pair, sandbox_id: str, status: int) -> str:
    """As E2B's and Daytona's clients are refused them by the server that has not got it."""
    key = pair.at_two.get_status(sandbox_id).key
    for path in (f"/e2b/sandboxes/{key}/metrics", f"/daytona/api/sandbox/{key}/telemetry/metrics"):
        answer = httpx.get(pair.two.url + path, headers={"X-API-Key": pair.one.key})
        assert answer.status_code == status, answer.text
    return str(answer.json()["message"])


def _while_it_is_thought_alive(client: SyncSandboxClient, sandbox_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            client.run_command(sandbox_id, "true")
        except SandboxElsewhere:
            time.sleep(0.1)
