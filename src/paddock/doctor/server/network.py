"""Attacks on the operator's private network by a member: by network, by name, and through a remote MCP server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx

from paddock.doctor.server.target import Target

_NETWORK = "10.0.0.0/8"
_PLACE = "10.0.0.1"
_SPELLINGS = (_PLACE, "10.1", "0x0a000001", "167772161", "012.0.0.1", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]")
"""Forms of one private address that resolvers accept."""
_HOSTS = Path("/etc/hosts")
_MAX_NAMES = 8
_REQUEST_TIMEOUT_S = 10.0
_MCP_TIMEOUT_S = 60.0


async def by_network(target: Target) -> str | None:
    """At creation and later, in every list that a member may set."""
    made = await target.sandbox()
    key = made["key"]
    daytona = (await target.member.post("/daytona/api/sandbox", json={})).raise_for_status().json()["id"]
    asked: list[tuple[str, str, dict[str, Any]]] = []
    for rules in ({"allow": [_NETWORK]}, {"private": [_NETWORK]}, {"private": ["db.corp.example"]}):
        egress = {"mode": "proxy", **rules}
        asked.append(("POST", "/sandboxes/create", {"user_id": "doctor", "egress": egress}))
        asked.append(("PUT", f"/sandboxes/{made['sandbox_id']}/egress", rules))
    asked += [
        ("POST", "/e2b/sandboxes", {"templateID": "base", "network": {"allowOut": [_NETWORK]}}),
        ("POST", "/e2b/v2/sandboxes", {"templateID": "base", "network": {"allowOut": [_NETWORK]}}),
        ("PUT", f"/e2b/sandboxes/{key}/network", {"allowOut": [_NETWORK]}),
        ("PUT", f"/e2b/sandboxes/{key}/network", {"allowOut": [_NETWORK], "denyOut": ["0.0.0.0/0"]}),
        ("POST", "/daytona/api/sandbox", {"networkAllowList": _NETWORK}),
        ("POST", f"/daytona/api/sandbox/{daytona}/network-settings", {"networkAllowList": _NETWORK}),
    ]
    return await _refused(target, asked)


async def _refused(target: Target, asked: Sequence[tuple[str, str, dict[str, Any]]]) -> str | None:
    for method, path, body in asked:
        answer = await target.member.request(method, path, json=body)
        if answer.status_code != httpx.codes.FORBIDDEN:
            return f"a member opens the operator's network by {method} {path} {json.dumps(body)} ({answer.status_code})"
    return None


async def by_name(target: Target) -> str | None:
    """A member's list may contain any name. The resolved address decides."""
    async with _canary() as (port, visitors):
        name = (await target.sandbox(egress={"mode": "proxy", "allow": ["*"]}))["sandbox_id"]
        for host in (*await asyncio.to_thread(_private_names), *_SPELLINGS):
            # Some names are refused in a list; those are tried with a list that allows everything.
            await target.member.put(f"/sandboxes/{name}/egress", json={"allow": ["*", host]})
            before = await _connections(target, name)
            asked = {"arguments": {"url": f"http://{host}:{port}/", "timeout": _REQUEST_TIMEOUT_S}}
            await target.member.post(f"/sandboxes/{name}/tools/http_request", json=asked)
            if visitors:
                return f"a service of this host is reached from a sandbox by the name {host}"
            latest = await _connections(target, name)
            if any(each["allowed"] for each in latest[len(before) :]):
                return f"a sandbox is let through to {host}, which is not public: {latest[-1]['reason']}"
        if _PLACE not in {each["host"] for each in latest}:
            return f"no connection to {_PLACE} is on record, so nothing is known of any"
    return None


async def by_mcp_server(target: Target) -> str | None:
    """The server itself connects to a member's remote MCP server on behalf of the sandbox."""
    async with _canary() as (port, visitors):
        name = (await target.sandbox())["sandbox_id"]
        server = f"/sandboxes/{name}/mcp-servers/attack"
        for host in ("127.0.0.1", "localhost", "169.254.169.254", *_SPELLINGS):
            before = await _connections(target, name)
            put = await target.member.put(server, json={"url": f"http://{host}:{port}/mcp"})
            if not put.is_success:
                continue
            if problem := await _tried(target, server):
                return problem
            latest = await _connections(target, name)
            if visitors or any(each["allowed"] for each in latest[len(before) :]):
                return f"the server connects to {host} for a member's MCP server"
            await target.member.delete(server)
        if _PLACE not in {each["host"] for each in latest}:
            return f"no connection to {_PLACE} is on record, so nothing is known of any"
    return None


async def _tried(target: Target, server: str) -> str | None:
    """Wait until a connection was made or refused."""
    async with asyncio.timeout(_MCP_TIMEOUT_S):
        while True:
            shown = (await target.member.get(server)).raise_for_status().json()
            if shown["status"] == "failed":
                return None
            if shown["status"] == "ready":
                return f"an MCP server at {shown['url']} is connected to"
            await asyncio.sleep(0.1)


async def _connections(target: Target, sandbox_id: str) -> list[dict[str, Any]]:
    """Recorded connections of this sandbox, oldest first."""
    shown = (await target.member.get(f"/sandboxes/{sandbox_id}/egress")).raise_for_status().json()
    return list(shown["latest"])


@asynccontextmanager
async def _canary() -> AsyncIterator[tuple[int, list[object]]]:
    """A service on this host's loopback, and the clients that connected to it."""
    visitors: list[object] = []

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitors.append(writer.get_extra_info("peername"))
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], visitors


def _private_names() -> list[str]:
    """Names that resolve to private addresses on this host without a DNS query."""
    names = ["localhost", socket.gethostname()]
    if _HOSTS.is_file():
        lines = (line.partition("#")[0].split() for line in _HOSTS.read_text(errors="replace").splitlines())
        names += [name for words in lines for name in words[1:]]
    return [name for name in dict.fromkeys(names) if name.isascii() and _is_private(name)][:_MAX_NAMES]


def _is_private(name: str) -> bool:
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(not ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in addresses)
