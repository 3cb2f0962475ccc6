"""Two machines on one PostgreSQL: each server has its own home and its own sandboxes, and knows of the other's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.client import SyncSandboxClient
from paddock.errors import ProviderUnavailable, SandboxElsewhere, SandboxNotFound
from tests.e2b.server import PaddockServer
from tests.support.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

_PATIENCE_S = 60.0
_TTL_S = 2.0


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

    # What a deadline asks for is done by the server that can do it.
    short = pair.at_one.create_sandbox("alice", timeout=1, metadata={"on": "one"}).sandbox_id
    _until_status(pair.at_two, short, "paused")
    pair.at_two.delete_sandbox(short)
    with pytest.raises(SandboxNotFound):
        pair.at_one.run_command(short, "true")

    pair.one.kill()
    with pytest.raises(ProviderUnavailable, match="no Paddock server runs now"):
        _while_it_is_thought_alive(pair.at_two, one)
    for each in (one, two):
        assert pair.at_two.get_status(each).status == "running"
    pair.one.start()
    assert pair.at_one.run_command(one, "echo still here").stdout == "still here\n"
    kinds = {event.type for each in (one, two) for event in pair.at_two.events(each).events}
    assert not kinds & {"sandbox.failed", "sandbox.recovered", "sandbox.adopted"}


def _until_status(client: SyncSandboxClient, sandbox_id: str, status: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while client.get_status(sandbox_id).status != status:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _while_it_is_thought_alive(client: SyncSandboxClient, sandbox_id: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            client.run_command(sandbox_id, "true")
        except SandboxElsewhere:
            time.sleep(0.1)
