"""What a list of tools costs a model, over real MCP: in each conversation it is sent as a whole.

A token is taken for four characters of the list as JSON, which is what the tokenizers of today's models come to on
such text; none of them can be had without a network or an account.

    python -m benchmarks.mcp_tokens
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.tables import table
from benchmarks.wire import Wire, request

CHARACTERS = 4
_LISTS = {
    "default": "",
    "default, where the browser is installed": "?tools=default,browser",
    "minimal": "?tools=minimal",
    "`files,shell`": "?tools=files,shell",
    "full; also default, where browser, Claude Code and Codex are installed": "?tools=full",
    "full, with schemas of results": "?tools=full&structured=true",
}


def tokens(tools: Sequence[Any]) -> int:
    """Of tools in the SDK's form or in the wire format."""
    listed = [
        each if isinstance(each, dict) else each.model_dump(mode="json", by_alias=True, exclude_none=True)
        for each in tools
    ]
    return round(len(json.dumps(listed, ensure_ascii=False, separators=(",", ":"))) / CHARACTERS)


async def measure() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with local_server(Path(folder) / "server", Template()) as server:
            wire = await Wire.open(server.port)
            box = await server.create(wire)
            for name, query in _LISTS.items():
                tools = await _listed(server, wire, box, query)
                rows.append((name, str(len(tools)), f"{tokens(tools):,}"))
            await server.delete(wire, [box])
    table("A list of tools over MCP", ("list", "tools", "tokens"), rows)


async def _listed(server: LocalServer, wire: Wire, box: str, query: str) -> list[dict[str, Any]]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    plain = request("POST", f"/p/{box}/6060/mcp/{query}", server.key, body)
    first, _, rest = plain.partition(b"\r\n")
    accepted = b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n"
    said = (await wire.ask(first + b"\r\n" + accepted + rest)).decode()
    data = next(line[5:] for line in said.splitlines() if line.startswith("data:"))
    tools: list[dict[str, Any]] = json.loads(data)["result"]["tools"]
    return tools


if __name__ == "__main__":
    asyncio.run(measure())
