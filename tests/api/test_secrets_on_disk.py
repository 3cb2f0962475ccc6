"""Every kind of secret, used once through the front door; then all that the server leaves behind is searched."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from paddock.client import SyncSandboxClient
from paddock.errors import PaddockError
from tests.e2b.server import PaddockServer
from tests.support.leaks import a_secret, remember
from tests.support.waiting import wait_until

WIPE_SECONDS = 30.0
"""Until nothing of what was removed is left beside the database."""


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_nothing_that_was_secret_is_left_when_a_sandbox_is_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    vendor_key = a_secret("vendor key")
    server = PaddockServer(home, PADDOCK_LOG_LEVEL="debug", E2B_API_KEY=vendor_key)
    server.start()
    admin_key = server.key
    secrets = {"the vendor's key": vendor_key}
    try:
        with SyncSandboxClient(server.url, api_key=admin_key) as admin:
            secrets |= {"a member's key": admin.create_key("alice").key}
            secrets |= _use_all(server.url, secrets["a member's key"])
        asyncio.run(_sockets(server.url, secrets, "unheard-of-command"))
        with SyncSandboxClient(server.url, api_key=admin_key) as admin:
            for sandbox in list(admin.iter_sandboxes()):
                admin.delete_sandbox(sandbox.sandbox_id)
    finally:
        server.stop()
    # A command is on record for whoever may see the sandbox (its events), and for nobody else.
    assert "unheard-of-command" not in server.log.read_text() and "/terminal" in server.log.read_text()
    assert _found(home, secrets, but={home / "key"}) == []
    assert _found(home, {"the admin's key": admin_key}, but={home / "key"}) == []


@pytest.mark.timeout(300)
def test_a_deleted_sandboxs_secrets_leave_the_disk_while_the_server_runs(tmp_path: Path) -> None:
    """Whatever it writes for itself meanwhile; and where it is killed before it could wipe them, with the next one."""
    home = tmp_path / "home"
    server = PaddockServer(home, PADDOCK_POOL_SIZE="0")
    server.start()
    try:
        for killed in (False, True):
            with SyncSandboxClient(server.url, api_key=server.key) as client:
                secrets = _variables(server, client)
                assert _found(home, secrets, but=set())
                for sandbox in list(client.iter_sandboxes()):
                    client.delete_sandbox(sandbox.sandbox_id)
            if killed:
                server.restart()
            wait_until(lambda secrets=secrets: not _found(home, secrets, but=set()), WIPE_SECONDS)
            server.kill()
            assert _found(home, secrets, but=set()) == []
            server.start()
    finally:
        server.stop()


@pytest.mark.timeout(300)
def test_a_log_that_is_written_without_a_pause_is_emptied_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = PaddockServer(home, PADDOCK_POOL_SIZE="0")
    server.start()
    try:
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            secrets = _variables(server, client)
            for sandbox in list(client.iter_sandboxes()):
                client.delete_sandbox(sandbox.sandbox_id)
            busy = client.create_sandbox("bob").sandbox_id
            until = time.monotonic() + 2 * WIPE_SECONDS
            while left := _found(home, secrets, but=set()):
                assert time.monotonic() < until, left
                for number in range(20):
                    client.schedule_timeout(busy, 600 + number)
            client.delete_sandbox(busy)
    finally:
        server.stop()


def _variables(server: PaddockServer, client: SyncSandboxClient) -> dict[str, str]:
    """Of one sandbox, in every place where it may have some."""
    kinds = ("variable", "later variable", "MCP header", "MCP variable", "replaced header", "service variable")
    secrets = {kind: a_secret(kind) for kind in kinds}
    box = client.create_sandbox("alice", env={"SECRET": secrets["variable"]})
    set_later = {"set": {"LATER": secrets["later variable"]}, "unset": []}
    headers = {"Authorization": f"Bearer {server.key}"}
    httpx.post(f"{server.url}/daytona/toolbox/{box.key}/env", json=set_later, headers=headers).raise_for_status()
    client.put_mcp_server(box.sandbox_id, "program", {"command": "cat", "env": {"TOKEN": secrets["MCP variable"]}})
    for kind in ("replaced header", "MCP header"):
        remote = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": secrets[kind]}}
        client.put_mcp_server(box.sandbox_id, "remote", remote)
    client.put_service(box.sandbox_id, "web", 8000, "true", env={"PASSWORD": secrets["service variable"]})
    return secrets


def _use_all(url: str, key: str) -> dict[str, str]:
    """Answers the secrets, and the id of the sandbox that they were used with under "id"."""
    variable, header, inside = a_secret("variable"), a_secret("MCP header"), a_secret("MCP variable")
    service, password = a_secret("service variable"), a_secret("git password")
    remote = {"url": f"http://user:{a_secret('MCP password')}@127.0.0.1:9/mcp", "headers": {"Authorization": header}}
    with SyncSandboxClient(url, api_key=key, retries=0) as client:
        with pytest.raises(PaddockError) as refused:  # nobody listens there, and the create is undone
            client.create_sandbox("alice", git_url=f"http://bob:{password}@127.0.0.1:9/nothing.git")
        assert password not in str(refused.value)
        box = client.create_sandbox("alice", env={"SECRET": variable}).sandbox_id
        client.put_mcp_server(box, "program", {"command": "cat", "env": {"TOKEN": inside}})
        client.put_mcp_server(box, "remote", remote)
        client.put_service(box, "web", 8000, "python3 -m http.server 8000", env={"PASSWORD": service})
        client.run_command(box, f"true --header 'Authorization: Bearer {key}' http://a:{password}@h.test/")
        link = client.create_link(box, 8000)
        ticket = client.create_ticket(box).ticket
        token = link.url.partition("paddock_link=")[2]
        httpx.get(f"{url}/sandboxes/{box}?token={key}&ticket={ticket}", headers={"X-API-Key": key})
    remember("signed link", token)
    return {
        "a variable": variable,
        "an MCP header": header,
        "an MCP variable": inside,
        "a service's variable": service,
        "a password of git": password,
        "a password of an MCP server": remote["url"].split(":")[2].partition("@")[0],  # type: ignore[union-attr]
        "a signed link": token,
        "a ticket": ticket,
        "id": box,
    }


async def _sockets(url: str, secrets: dict[str, str], command: str) -> None:
    """A ticket and a command in the address of a WebSocket."""
    box, ticket = secrets.pop("id"), secrets["a ticket"]
    address = f"{url.replace('http', 'ws', 1)}/sandboxes/{box}/terminal?ticket={ticket}&command=echo+{command}"
    async with connect(address) as socket:
        await socket.recv()


def _found(home: Path, secrets: dict[str, str], but: set[Path]) -> list[str]:
    assert all(len(secret) >= 12 for secret in secrets.values())
    found = []
    for file in home.rglob("*"):
        if file.is_file() and not file.is_symlink() and file not in but:
            data = file.read_bytes()
            found += [f"{kind} in {file.relative_to(home)}" for kind, one in secrets.items() if one.encode() in data]
    return found
