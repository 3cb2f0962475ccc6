"""A relative path begins in /workspace, on every surface; none leads out of where it may."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import SandboxClient, SandboxSession, SyncSandboxClient, errors
from paddock.client.answers import Sandbox
from tests.e2b.server import PaddockServer
from tests.support.waiting import PATIENCE_S


def cli(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "paddock", *words], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_files_over_http(local_server: PaddockServer, box: Sandbox, name: str) -> None:
    whole = f"/workspace/{name}/hello.py"
    headers = {"Authorization": f"Bearer {local_server.key}"}
    async with httpx.AsyncClient(base_url=local_server.url, headers=headers, timeout=60) as http:

        async def ask(method: str, path: str, **request: Any) -> Any:
            answer = await http.request(method, path, **request)
            assert answer.is_success, answer.text
            return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content

        files, here = f"/sandboxes/{box.sandbox_id}/files", {"path": f"{name}/hello.py"}
        body = {"sandbox_id": box.sandbox_id, "path": f"{name}/hello.py"}
        written = await ask("POST", "/sandboxes/write-file", json={**body, "content": "print(1)"})
        assert written["file"]["path"] == whole
        read = await ask("POST", "/sandboxes/read-file", json=body)
        assert (read["path"], read["content"]) == (whole, "print(1)")
        assert (await ask("PUT", files, params=here, content=b"print(2)"))["file"]["path"] == whole
        assert await ask("GET", files, params=here) == b"print(2)"
        assert (await http.head(files, params=here)).headers["content-length"] == "8"
        assert (await ask("GET", f"{files}/stat", params=here))["path"] == whole
        listed = await ask("GET", f"{files}/list", params={"path": name})
        assert (listed["path"], [each["path"] for each in listed["entries"]]) == (f"/workspace/{name}", [whole])
        assert whole in {each["path"] for each in (await ask("GET", f"{files}/list?depth=2"))["entries"]}
        assert (await ask("POST", f"{files}/mkdir", json={"path": f"{name}/a/b"}))["path"] == f"/workspace/{name}/a/b"
        moved = {"source": f"{name}/hello.py", "destination": f"{name}/a/b/hi.py"}
        assert (await ask("POST", f"{files}/move", json=moved))["path"] == f"/workspace/{name}/a/b/hi.py"
        await ask("DELETE", files, params={"path": f"{name}/a/b/hi.py"})
        assert (await http.get(files, params={"path": f"{name}/a/b/hi.py"})).status_code == 404


async def test_a_watch(client: SandboxClient, box: Sandbox, name: str) -> None:
    await client.make_directory(box.sandbox_id, name)
    changes = client.watch_files(box.sandbox_id, name)
    async with asyncio.timeout(PATIENCE_S):
        first = asyncio.ensure_future(anext(changes))
        while not first.done():  # until the watch is there
            await client.write_file(box.sandbox_id, f"{name}/seen", "x")
            await asyncio.wait([first], timeout=0.2)
    assert first.result().path == f"/workspace/{name}/seen"
    await changes.aclose()  # type: ignore[attr-defined]


async def test_the_async_client(client: SandboxClient, box: Sandbox, name: str) -> None:
    await client.write_file(box.sandbox_id, f"{name}.py", "print('hello')")
    assert await client.read_file(box.sandbox_id, f"{name}.py") == "print('hello')"
    assert await client.read_bytes(box.sandbox_id, f"/workspace/{name}.py") == b"print('hello')"
    await client.upload(box.sandbox_id, f"{name}/deep", b"down")
    assert b"".join([piece async for piece in client.download(box.sandbox_id, f"{name}/deep")]) == b"down"
    inside = await client.run_command(box.sandbox_id, "pwd; cat deep", cwd=name)
    assert inside.output == f"/workspace/{name}\ndown"
    process = await client.start_process(box.sandbox_id, "pwd", cwd=name)
    await client.wait_process(box.sandbox_id, process.process_id)
    assert (await client.read_output(box.sandbox_id, process.process_id)).stdout == f"/workspace/{name}\n"


def test_the_sync_client(box: Sandbox, name: str) -> None:
    with SyncSandboxClient() as client:
        client.write_file(box.sandbox_id, f"{name}.py", "print('hello')")
        assert client.read_file(box.sandbox_id, f"{name}.py") == "print('hello')"
        assert client.stat_file(box.sandbox_id, f"./{name}.py").path == f"/workspace/{name}.py"


async def test_home_is_a_tilde(client: SandboxClient, box: Sandbox, name: str) -> None:
    assert (await client.write_file(box.sandbox_id, f"~/{name}", "x")).file.path == f"/home/user/{name}"
    assert (await client.run_command(box.sandbox_id, f"cat ~/{name}")).output == "x"


async def test_a_session(box: Sandbox, name: str) -> None:
    async with await SandboxSession.create(user_id="newcomer") as session:
        await session.write_file("hello.py", "print('hello')")
        assert (await session.run("python3 hello.py")).output == "hello\n"
        tools = {tool.name: tool for tool in session.get_tools(["file_write", "file_read"])}
        await tools["file_write"].ainvoke({"path": "app.py", "content": "print('app')"})
        assert "print('app')" in await tools["file_read"].ainvoke({"path": "/workspace/app.py"})


def test_copying_at_a_terminal(box: Sandbox, name: str, tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text("a,b")
    cli("cp", "report.csv", f"{box.sandbox_id}:{name}.csv", cwd=tmp_path)
    cli("cp", "report.csv", f"{box.sandbox_id}:", cwd=tmp_path)
    assert cli("cp", f"{box.sandbox_id}:{name}.csv", "-", cwd=tmp_path) == "a,b"
    cli("cp", f"{box.sandbox_id}:report.csv", "back", cwd=tmp_path)
    assert (tmp_path / "back").read_text() == "a,b"
    assert cli("exec", box.sandbox_id, "--cwd", ".", "--", f"cat {name}.csv report.csv", cwd=tmp_path) == "a,ba,b"


@pytest.mark.parametrize("path", ["../etc/passwd", "a/../../etc/passwd", "~/../../etc/passwd", "..", ""])
async def test_no_path_leads_up(client: SandboxClient, box: Sandbox, path: str) -> None:
    with pytest.raises(errors.Invalid):
        await client.read_file(box.sandbox_id, path)
    with pytest.raises(errors.Invalid):
        await client.upload(box.sandbox_id, path, b"x")


async def test_a_link_out_of_the_workspace_leads_nowhere_but_into_the_sandbox(
    client: SandboxClient, box: Sandbox, name: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of the host")
    await client.run_command(box.sandbox_id, f"ln -s {tmp_path} {name}")
    with pytest.raises(errors.PathNotFound):
        await client.read_file(box.sandbox_id, f"{name}/secret")
