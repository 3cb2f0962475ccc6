"""What programs written for older sandbox servers type, typed as they type it: the clients and the object API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import (
    DaytonaSandbox,
    E2BSandbox,
    SandboxClient,
    SandboxSession,
    SyncSandboxClient,
    create_sandbox,
    errors,
)
from paddock.client.answers import Sandbox
from paddock.session import LocalSandbox
from paddock.settings import Settings
from tests.client.server import running_server
from tests.e2b.server import PaddockServer

# The clients


async def test_a_result_is_printed_as_its_output(
    client: SandboxClient, box: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    output = await client.run_command(box.sandbox_id, "echo out; echo err >&2")
    print(output)
    assert capsys.readouterr().out == "out\nerr\n\n"
    assert str(output) == f"{output}" == output.output


async def test_what_create_answers_is_the_id_where_one_is_wanted(client: SandboxClient) -> None:
    sandbox_id = await client.create_sandbox("newcomer", None, 600)
    assert f"{sandbox_id}" == sandbox_id.sandbox_id and sandbox_id.timeout == 600
    made: Any = sandbox_id
    await client.write_file(made, "hello.py", "print('hello')")
    assert str(await client.run_command(made, "python3 hello.py")) == "hello\n"
    await client.delete_sandbox(sandbox_id=made)


async def test_a_timeout_by_its_place(local_server: PaddockServer, box: Sandbox) -> None:
    async with SandboxClient(local_server.url, 60.0) as client:
        result = await client.run_command(box.sandbox_id, "sleep 60", False, 0.1)
        assert result.status == "running"
        await client.send_signal(box.sandbox_id, result.process_id, "SIGKILL")
        assert (await client.connect_sandbox(box.sandbox_id, 3600)).timeout == 3600
    with SyncSandboxClient(local_server.url, 60.0) as twin:
        assert twin.schedule_timeout(box.sandbox_id, 1800).timeout == 1800


async def test_methods_by_their_older_names(client: SandboxClient, local_server: PaddockServer, name: str) -> None:
    sandbox_id = await client.create_sandbox("newcomer")
    assert str(await client.run_cmd(sandbox_id, "echo hello")) == "hello\n"
    assert (await client.get_sandbox_status(sandbox_id)).status == "running"
    assert (await client.get_sandbox_info(sandbox_id)).template_id == "host"
    await client.create_directory(sandbox_id, f"{name}/inner")
    await client.upload_file(sandbox_id, f"{name}/inner/data", b"\x00\xff")
    assert await client.download_file(sandbox_id, f"{name}/inner/data") == b"\x00\xff"
    assert (await client.health_check()).status == "ok"
    with SyncSandboxClient(local_server.url) as twin:
        assert str(twin.run_cmd(sandbox_id, f"ls {name}")) == "inner\n"
    await client.delete_sandbox(sandbox_id)


async def test_no_content_makes_an_empty_file(
    local_server: PaddockServer, client: SandboxClient, box: Sandbox, name: str
) -> None:
    body = {"sandbox_id": box.sandbox_id, "path": name, "content": None}
    async with httpx.AsyncClient(base_url=local_server.url, headers={"X-API-Key": local_server.key}) as http:
        assert (await http.post("/sandboxes/write-file", json=body)).json()["file"]["size"] == 0
        missing = await http.post("/sandboxes/write-file", json={"sandbox_id": box.sandbox_id, "path": name})
        assert missing.status_code == 422
    await client.write_file(box.sandbox_id, name, None)
    assert await client.read_file(box.sandbox_id, name) == ""


@pytest.mark.parametrize("module", ["paddock", "paddock.mcp"])
def test_the_modules_are_programs(module: str) -> None:
    shown = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and "--help" in shown.stdout


def test_the_ports_of_mcp_and_vs_code_are_settings(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "home", MCP_PORT=7070, VSCODE_PORT=9100) as server,
        SyncSandboxClient(server.url, api_key=server.key) as client,
    ):
        box = client.create_sandbox("newcomer")
        try:
            assert "/7070/mcp/" in box.mcp_url and "//9100-" in box.vscode_url
            call = {"tool": "write_file", "args": {"path": "hello.py", "content": "print('hello')"}}
            answer = httpx.post(box.mcp_url, json=call, headers={"X-API-Key": server.key}, timeout=60)
            assert answer.json()["success"], answer.text
            assert client.read_file(box.sandbox_id, "hello.py") == "print('hello')"
        finally:
            client.delete_sandbox(box.sandbox_id)


@pytest.mark.parametrize("ports", [{"MCP_PORT": 9000}, {"VSCODE_PORT": 49983}, {"MCP_PORT": 3128}, {"MCP_PORT": 53}])
def test_a_port_of_another_service_is_refused(ports: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="choose another"):
        Settings(_env_file=None, **ports)  # type: ignore[arg-type]


# One object


@pytest.fixture
async def sandbox() -> AsyncIterator[SandboxSession]:
    sandbox = await create_sandbox()
    yield sandbox
    if sandbox.is_open and (await sandbox.get_status()).status != "deleted":
        await sandbox.delete()
    await sandbox.clients.aclose()


async def test_one_object(sandbox: SandboxSession) -> None:
    sandbox_id = await sandbox.create(template="host", timeout=3600)
    assert (sandbox_id, sandbox.sandbox.timeout) == (sandbox.sandbox_id, 3600)
    await sandbox.write_file("app.py", "print('hello')")
    assert await sandbox.read_file("app.py") == "print('hello')"
    assert str(await sandbox.run_command("python3 app.py")) == "hello\n"
    assert str(await sandbox.execute("print('hi')\n6 * 7")) == "hi\n42"
    assert "ZeroDivisionError" in str(await sandbox.execute("1 / 0"))
    await sandbox.run_command("python3 -m http.server 8000", background=True)
    url = await sandbox.get_preview_url(port=8000)
    assert "//8000-" in url
    with pytest.raises(errors.Conflict, match="another object"):
        await sandbox.create()
    await sandbox.delete()


async def test_the_first_use_makes_the_sandbox(sandbox: SandboxSession) -> None:
    with pytest.raises(errors.Conflict, match="create"):
        _ = sandbox.sandbox_id
    seen = [event.type async for event in sandbox.stream_command("echo hello")]
    assert seen == ["started", "output", "exit"]
    assert str(await sandbox.run_command("echo again")) == "again\n"


async def test_a_provider_by_its_name() -> None:
    sandbox = await create_sandbox(provider="local")
    assert isinstance(sandbox, LocalSandbox)
    async with sandbox:
        assert sandbox.sandbox.provider == "local"
    with SyncSandboxClient() as client:
        assert client.get_status(sandbox.sandbox_id).status == "deleted"


@pytest.mark.parametrize("kind", [E2BSandbox, DaytonaSandbox])
async def test_a_provider_by_its_class(kind: type[SandboxSession]) -> None:
    """This server has neither, and says so."""
    sandbox = kind()
    assert sandbox.provider is not None
    with pytest.raises(errors.PaddockError, match=sandbox.provider):
        await sandbox.create(git_url="https://example.org/some/project.git", image="python:3.11-slim")
    with pytest.raises(errors.PaddockError, match=sandbox.provider):
        await kind().create(template="python-data-science")
    with pytest.raises(errors.Invalid, match="one of template and image"):
        await kind().create(template="python-data-science", image="python:3.11-slim")


async def test_a_template_that_is_not_there_is_said(sandbox: SandboxSession) -> None:
    with pytest.raises(errors.PaddockError, match="nonesuch"):
        await sandbox.create("nonesuch")
