"""A whole Paddock on machines at a vendor: what its users see is what they see anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paddock.client import SyncSandboxClient
from tests.e2b.server import PaddockServer
from tests.support.waiting import wait_until
from tests.vendor.account import Account

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(account: Account, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    started = PaddockServer(
        tmp_path_factory.mktemp("front") / "home",
        SANDBOX_PROVIDER="e2b",
        E2B_API_KEY=account.server.key,
        E2B_API_URL=f"{account.server.url}/e2b",
        E2B_SANDBOX_URL=account.server.url,
        E2B_TIMEOUT="600",
    )
    started.start()
    yield started
    started.stop()


@pytest.fixture
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as found:
        yield found
        for sandbox in list(found.iter_sandboxes()):
            found.delete_sandbox(sandbox.sandbox_id)


def test_a_sandbox_lives_its_whole_life_at_the_vendor(
    client: SyncSandboxClient, server: PaddockServer, account: Account
) -> None:
    made = client.create_sandbox("alice", env={"GREETING": "hello"}, timeout=300)
    assert client.run_command(made.sandbox_id, "echo $GREETING; id -un; pwd").stdout == "hello\nuser\n/workspace\n"
    environment = client.run_command(made.sandbox_id, "env").stdout
    assert account.server.key not in environment and "E2B_API_KEY" not in environment
    client.write_file(made.sandbox_id, "/workspace/index.html", "a page")
    assert client.read_file(made.sandbox_id, "/workspace/index.html") == "a page"

    client.pause_sandbox(made.sandbox_id)
    assert client.get_status(made.sandbox_id).status == "paused"
    assert client.run_command(made.sandbox_id, "cat index.html").stdout == "a page"  # any use wakes

    client.run_command(made.sandbox_id, "python3 -m http.server 8000", background=True)
    address = f"{server.url}/p/{made.key}/8000/index.html"
    wait_until(lambda: httpx.get(address, headers={"X-API-Key": server.key}).text == "a page")

    client.delete_sandbox(made.sandbox_id)
    with account.owner() as owner:
        assert [one for one in owner.iter_sandboxes() if one.metadata.get("paddock-sandbox") == made.sandbox_id] == []


def test_a_restarted_server_finds_its_sandboxes_and_their_processes(
    client: SyncSandboxClient, server: PaddockServer
) -> None:
    made = client.create_sandbox("alice", timeout=300)
    client.run_command(made.sandbox_id, "sleep 1000", background=True)
    server.restart()
    assert "sleep 1000" in client.run_command(made.sandbox_id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert client.get_status(made.sandbox_id).status == "running"


def test_a_key_that_is_refused_stops_the_server_with_a_word(account: Account, tmp_path: Path) -> None:
    refused = PaddockServer(
        tmp_path / "home",
        SANDBOX_PROVIDER="e2b",
        E2B_API_KEY="e2b_0000",
        E2B_API_URL=f"{account.server.url}/e2b",
        E2B_SANDBOX_URL=account.server.url,
    )
    with pytest.raises(RuntimeError, match="E2B_API_KEY"):
        refused.start()
