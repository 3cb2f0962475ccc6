"""Attacks on the shared server process: input that is costly to parse, from members and their sandboxes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx

from paddock.doctor.server.target import PULSE_S, Target, stalled

_WORD = 60_000
"""Length of one word, which used to take 27 s."""
_WORDY_GIT = f"""#!/bin/sh
head -c {_WORD} /dev/zero | tr '\\0' a >&2
exit 1
"""
_LYING_GIT = """#!/bin/sh
case "$*" in *status*) yes '? a' | head -n 4000000 | tr '\\n' '\\0' ;; esac
"""
_ENTRIES = 50_000
_MCP_BYTES = 64 << 20
_MCP_TIMEOUT_S = 120.0
_MCP_GREETING = (
    b'{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "large", "version": "1"}}'
)
_NOT_ASKED = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)


async def fields_and_lines(target: Target) -> str | None:
    """Patterns, patches, edits, lines and bodies, several at once."""
    name = (await target.sandbox())["sandbox_id"]
    await target.tool(name, "run_command", command=f"touch {'a' * 250}")
    await target.tool(name, "write_file", path="same", content="same\n" * 30_000)
    hunks = "@@\n same\n same\n-same\n+other\n" * 8_000
    fields = json.dumps({f"f{number}": 1 for number in range(80_000)})
    patch = f"*** Begin Patch\n*** Update File: same\n{hunks}*** End Patch"
    return await _stalled(
        target,
        lambda: [
            _tool(target, name, "glob_files", pattern="*a*a*a*a*a*a*a*a b"),
            _tool(target, name, "shell_run", command="head -c 1000000 /dev/zero | tr '\\0' x"),
            _tool(target, name, "apply_patch", patch=patch),
            _tool(target, name, "edit_file", path="same", old_string=" same\n" * 15_000 + "x", new_string="y"),
            *(target.member.post("/sandboxes/create", content=fields) for _ in range(8)),
        ],
    )


async def git(target: Target) -> str | None:
    """A program named git that prints one very long word, or millions of changes."""
    made = await target.sandbox()
    name = made["sandbox_id"]
    status = f"/daytona/toolbox/{made['key']}/git/status"
    where = {"path": "/workspace"}
    await target.member.get(status, params=where)  # the first request builds the facade
    for what, script in (("one word", _WORDY_GIT), ("its status", _LYING_GIT)):
        await target.tool(name, "write_file", path="git", content=script)
        await target.tool(name, "run_command", command="sudo install -m 755 git /usr/local/bin/git")
        if problem := await _stalled(
            target,
            lambda: [
                _tool(target, name, "git_status"),
                _tool(target, name, "git_push"),
                target.member.get(status, params=where),
            ],
        ):
            return f"{problem}, for {what} of git's"
    return None


async def listing(target: Target) -> str | None:
    """A directory with very many entries, listed through every API."""
    made = await target.sandbox()
    name, key = made["sandbox_id"], made["key"]
    found = (await target.member.get(f"/e2b/sandboxes/{key}")).raise_for_status().json()
    headers = {"E2b-Sandbox-Id": key, "E2b-Sandbox-Port": "49983", "X-Access-Token": found["envdAccessToken"]}

    def by_envd(path: str) -> list[Awaitable[httpx.Response]]:
        asked = {"path": path, "depth": 1}
        return [target.member.post("/filesystem.Filesystem/ListDir", json=asked, headers=headers)]

    def natively(path: str) -> list[Awaitable[httpx.Response]]:
        return [target.member.get(f"/sandboxes/{name}/files/list", params={"path": path})]

    def by_daytona(path: str) -> list[Awaitable[httpx.Response]]:
        return [target.member.get(f"/daytona/toolbox/{key}/files", params={"path": path})]

    await target.tool(name, "run_command", command=f"mkdir many && cd many && seq {_ENTRIES} | xargs touch")
    for what, ask in (("E2B's ListDir", by_envd), ("the native API", natively), ("Daytona's API", by_daytona)):
        await asyncio.gather(*ask("/workspace"))  # the first request builds the facade
        if problem := await _stalled(target, partial(ask, "/workspace/many")):
            return f"{problem}, for {_ENTRIES} entries by {what}"
    return None


async def mcp_answer(target: Target) -> str | None:
    """A remote MCP server that answers with a very large JSON document when asked for its tools."""
    name = (await target.sandbox())["sandbox_id"]
    server = f"/sandboxes/{name}/mcp-servers/large"
    async with _mcp_server(target) as answer:
        await _known(target, server)  # the first one loads the SDK
        answer.padding = b"0," * (_MCP_BYTES // 2) + b"0"
        problem = await _stalled(target, lambda: [_known(target, server)])
    return problem and f"{problem}, for a remote MCP server's answer of {_MCP_BYTES >> 20} MB"


async def _known(target: Target, server: str) -> httpx.Response:
    """Register the server again, and wait until it was asked for its tools."""
    await target.member.delete(server)
    host, port = target.outside.getsockname()
    put = await target.member.put(server, json={"url": f"http://{host}:{port}/mcp"})
    put.raise_for_status()
    async with asyncio.timeout(_MCP_TIMEOUT_S):
        while True:
            shown = await target.member.get(server)
            if shown.json()["status"] in ("ready", "failed"):
                return shown
            await asyncio.sleep(PULSE_S)


class _McpAnswer:
    padding = b""
    """Padding of the list of tools."""

    async def give(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on one connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        message = json.loads(await reader.readexactly(int(length or 0)) or b"{}")
        result = self._result(message.get("method", ""))
        if result is None:
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            number = json.dumps(message.get("id")).encode()
            body = b'{"jsonrpc": "2.0", "id": ' + number + b', "result": ' + result + b"}"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    def _result(self, method: str) -> bytes | None:
        if method == "initialize":
            return _MCP_GREETING
        return b'{"tools": [], "padding": [' + self.padding + b"]}" if method == "tools/list" else None


@asynccontextmanager
async def _mcp_server(target: Target) -> AsyncIterator[_McpAnswer]:
    answer = _McpAnswer()

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer.give(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async with await asyncio.start_server(give, sock=target.outside.dup()):
        yield answer


def _tool(target: Target, sandbox_id: str, name: str, **arguments: Any) -> Awaitable[httpx.Response]:
    return target.member.post(f"/sandboxes/{sandbox_id}/tools/{name}", json={"arguments": arguments})


async def _stalled(target: Target, ask: Callable[[], Sequence[Awaitable[httpx.Response]]]) -> str | None:
    async def attack() -> str | None:
        for answer in await asyncio.gather(*ask()):  # a refusal is a correct answer
            if answer.status_code in _NOT_ASKED:
                return f"{answer.request.url.path} was not tried: it answered {answer.status_code}"
        return None

    return await stalled(target, attack)
