"""What somebody does first with a server that was just installed: by command line, Python and MCP."""

from __future__ import annotations

import json
from pathlib import Path

from tests.packaging.installed import Person, Server

_BY_PYTHON = """
from paddock import SyncSandboxClient
with SyncSandboxClient() as client:
    box = client.create_sandbox("alice")
    client.write_file(box.sandbox_id, "hello.py", "print('hello')")
    print(client.run_command(box.sandbox_id, "python3 hello.py").stdout, end="")
    print(client.get_isolation(box.sandbox_id).level)
    client.delete_sandbox(box.sandbox_id)
"""

# As an MCP client does it: initialize, and then a call.
_BY_MCP = """
import json, sys, httpx
url, key = sys.argv[1:]
def ask(method, **params):
    headers = {"X-API-Key": key, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = httpx.post(url, headers=headers, json=body, timeout=60)
    answer.raise_for_status()
    text = answer.text
    if "event-stream" in answer.headers["content-type"]:
        text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
    return json.loads(text)["result"]
info = {"name": "test", "version": "1"}
print(ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)["serverInfo"]["name"])
print(len(ask("tools/list")["tools"]))
print(ask("tools/call", name="run_command", arguments={"command": "echo by mcp"})["content"][0]["text"])
"""


def make_a_first_sandbox(person: Person, server: Server, paddock: Path, python: Path | None) -> None:
    """``python``: where the client can be imported; None where a tool is installed for its command only."""
    sandbox_id = person.run(paddock, "create", "--user-id", "alice").strip()
    assert person.run(paddock, "exec", sandbox_id, "--", "echo hello; id -un") == "hello\nuser\n"
    assert person.run(paddock, "run-code", sandbox_id, "x = 20; x + 1").strip() == "21"
    assert person.run(paddock, "run-code", sandbox_id, "x + 2").strip() == "22"
    assert "downloading the kernels of run_code" in server.log
    if python is not None:
        hello, level = person.run(python, "-c", _BY_PYTHON).split()
        assert hello == "hello" and level
        made = json.loads(person.run(paddock, "status", sandbox_id, "--json"))
        name, tools, said = person.run(python, "-c", _BY_MCP, made["mcp_url"], server.key).split("\n", 2)
        assert name and int(tools) > 20 and "by mcp" in said
    person.run(paddock, "kill", sandbox_id)
    assert "Sandboxes run here" in person.run(paddock, "doctor")
