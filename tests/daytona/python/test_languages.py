"""A language server, of which a small one is installed here so that there is something to talk to."""

from __future__ import annotations

from typing import Any

import daytona
import pytest
from daytona.common.lsp_server import LspCompletionPosition

SERVER = r"""#!/usr/bin/env python3
import json, sys
def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()
opened = {}
while True:
    size = 0
    while (line := sys.stdin.buffer.readline().strip()):
        if line.lower().startswith(b"content-length:"):
            size = int(line.split(b":")[1])
    if not size:
        break
    asked = json.loads(sys.stdin.buffer.read(size))
    what, told = asked.get("method"), asked.get("params") or {}
    place = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 5}}
    if what == "initialize":
        send({"id": 99, "method": "workspace/configuration", "params": {"items": [{}]}})
        answer = {"capabilities": {}}
    elif what == "textDocument/didOpen":
        opened[told["textDocument"]["uri"]] = told["textDocument"]["text"]
    elif what == "textDocument/completion":
        answer = [{"label": word, "documentation": "text"} for word in opened[told["textDocument"]["uri"]].split()]
    elif what == "textDocument/documentSymbol":
        inner = {"name": "g", "kind": 12, "range": place, "selectionRange": place}
        answer = [{"name": "f", "kind": 12, "range": place, "selectionRange": place, "children": [inner]}]
    elif what == "workspace/symbol":
        answer = [{"name": told["query"], "kind": 5, "location": {"uri": "file:///x", "range": place}}]
    if what and "id" in asked:
        send({"id": asked["id"], "result": answer})
"""


def test_a_language_server_where_one_is_installed(sandbox: Any, folder: str) -> None:
    absent = sandbox.create_lsp_server("python", folder)
    with pytest.raises(daytona.DaytonaError, match="pip install"):
        absent.start()
    sandbox.fs.upload_file(SERVER.encode(), f"{folder}/bin/pylsp")
    sandbox.fs.set_file_permissions(f"{folder}/bin/pylsp", mode="755")
    sandbox.update_env({"PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin"})
    sandbox.fs.upload_file(b"def f(): pass", f"{folder}/a.py")
    server = sandbox.create_lsp_server("python", folder)
    with pytest.raises(daytona.DaytonaBadRequestError):
        server.did_open(f"{folder}/a.py")
    server.start()
    server.did_open(f"{folder}/a.py")
    found = server.completions(f"{folder}/a.py", LspCompletionPosition(line=0, character=1))
    assert [item.label for item in found.items] == ["def", "f():", "pass"]
    assert [symbol.name for symbol in server.document_symbols(f"{folder}/a.py")] == ["f", "g"]
    assert [symbol.name for symbol in server.sandbox_symbols("thing")] == ["thing"]
    assert [symbol.name for symbol in server.workspace_symbols("other")] == ["other"]
    server.did_close(f"{folder}/a.py")
    server.stop()
