"""Language servers as Daytona's SDKs call them: paths that are relative, and servers that know less."""

from __future__ import annotations

import pytest

from tests.daytona_control.conftest import Daytona, refused
from tests.daytona_control.test_toolbox import Box

SERVER = """#!/usr/bin/env python3
import json, sys
def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message})
    print(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}", end="", flush=True)
opened = {}
while head := sys.stdin.readline():
    sys.stdin.readline()
    asked = json.loads(sys.stdin.read(int(head.split()[1])))
    what, told = asked["method"], asked.get("params") or {}
    if what == "textDocument/didOpen":
        opened[told["textDocument"]["uri"]] = told["textDocument"]["text"]
    if "id" not in asked:
        continue
    if what == "workspace/symbol":
        send({"id": asked["id"], "error": {"code": -32601, "message": "Method Not Found: workspace/symbol"}})
    elif what == "textDocument/completion":
        send({"id": asked["id"], "result": [{"label": opened[told["textDocument"]["uri"]]}]})
    else:
        send({"id": asked["id"], "result": []})
"""


@pytest.fixture
async def box(daytona: Daytona) -> Box:
    made = await daytona.new(env={"PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin"})
    box = Box(daytona, made["id"])
    await box.put("/workspace/bin/pylsp", SERVER.encode())
    await box.post("/process/execute", {"command": "chmod 755 /workspace/bin/pylsp; mkdir -p project/src"})
    return box


async def test_relative_paths_start_at_the_work_directory_or_the_project(box: Box) -> None:
    await box.put("/workspace/project/src/a b.py", b"alpha")
    which = {"languageId": "python", "pathToProject": "project"}
    assert (await box.post("/lsp/start", which)).status_code == 200
    for uri in ("file://project/src/a b.py", "file://src/a%20b.py", "file:///workspace/project/src/a%20b.py"):
        opened = await box.post("/lsp/did-open", {**which, "uri": uri})
        assert opened.status_code == 200, opened.text
        asked = {**which, "uri": uri, "position": {"line": 0, "character": 0}}
        found = (await box.post("/lsp/completions", asked)).json()
        assert [each["label"] for each in found["items"]] == ["alpha"]
        assert (await box.post("/lsp/did-close", {**which, "uri": uri})).status_code == 200
    body = {**which, "uri": "file://src/nowhere.py"}
    refused(await box.post("/lsp/did-open", body), 404, "/workspace/project/src/nowhere.py", "FILE_NOT_FOUND")
    await box.post("/lsp/stop", which)


async def test_a_server_without_symbols_of_the_workspace_is_told_of_with_one_that_has_them(box: Box) -> None:
    which = {"languageId": "python", "pathToProject": "/workspace"}
    assert (await box.post("/lsp/start", which)).status_code == 200
    answer = await box.get("/lsp/workspacesymbols", query="x", **which)
    refused(answer, 501, "pip install jedi-language-server")
    await box.post("/lsp/stop", which)
