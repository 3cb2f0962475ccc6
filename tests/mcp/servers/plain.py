"""A small MCP server of the handshake era, written by hand: what it does beside answering is told by its arguments.

``babble``: writes what is no message. ``hang``: never answers. ``modern``: speaks 2026-07-28 only.
``many``: has several megabytes of tools.
"""

import json
import os
import sys

habits = sys.argv[1:]
TOOLS = [
    {
        "name": "echo",
        "description": "Says it again.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "pid", "inputSchema": {"type": "object"}},
    {"name": "variable", "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    {"name": "die", "inputSchema": {"type": "object"}},
    {"name": "fail", "inputSchema": {"type": "object"}},
]
if "many" in habits:
    TOOLS += [{"name": f"t{n}", "description": "x" * 20_000, "inputSchema": {"type": "object"}} for n in range(400)]
    TOOLS.insert(0, {"name": "n" * 100_000, "title": "x" * 100_000, "inputSchema": {"type": "object"}})


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def called(name, arguments):
    if name == "die":
        sys.stderr.write("I am done for\n")
        sys.exit(3)
    if name == "fail":
        return {"content": [{"type": "text", "text": "that did not work"}], "isError": True}
    text = {
        "echo": lambda: arguments["text"],
        "pid": lambda: str(os.getpid()),
        "variable": lambda: os.environ.get(arguments["name"], ""),
    }[name]()
    return {"content": [{"type": "text", "text": text}]}


def answer(method, params):
    if method == "initialize" and "modern" not in habits:
        info = {"name": "plain", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "server/discover" and "modern" in habits:
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "public",
        }
    rest = {"resultType": "complete"} if "modern" in habits else {}
    if method == "tools/list":
        return {"tools": TOOLS, **rest, **({"ttlMs": 0, "cacheScope": "public"} if rest else {})}
    if method == "tools/call":
        return {**called(params["name"], params.get("arguments", {})), **rest}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "babble" in habits:
        sys.stdout.write("INFO: something came in\n{not json}\n\n[1, 2]\n")
    if "id" not in message or "hang" in habits:
        continue
    result = answer(message["method"], message.get("params") or {})
    if result is None:
        error = {"code": -32601, "message": "Method not found"}
        say({"jsonrpc": "2.0", "id": message["id"], "error": error})
    else:
        say({"jsonrpc": "2.0", "id": message["id"], "result": result})
