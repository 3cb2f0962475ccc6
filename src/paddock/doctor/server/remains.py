"""Attacks that leave traces: a sandbox that cannot be deleted, and secrets in the server's files."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path

import httpx

from paddock.doctor.server.target import REQUEST_TIMEOUT_S, Target

_WIPED_S = 60.0
"""Maximum time until no data of a deleted sandbox is left: SQLite's write-ahead log is emptied within half a minute if
possible."""
_LOOK_S = 0.5


async def undeletable(target: Target) -> str | None:
    """As many processes as permitted that ignore all signals, and a full disk."""
    name = (await target.sandbox(resources={"pids": 64, "disk_mb": 64}))["sandbox_id"]
    fill = "trap '' TERM INT HUP; cat /dev/zero >/workspace/full; for i in $(seq 100); do sleep 1000 & done; kill -9 1"
    await target.tool(name, "run_command", command=f"sudo sh -c '{fill}' >/dev/null 2>&1", background=True)
    await asyncio.sleep(1)
    deleted = await target.member.delete(f"/sandboxes/{name}")
    status = (await target.member.get(f"/sandboxes/{name}")).json().get("status")
    if deleted.status_code != 200 or status != "deleted":
        return f"a sandbox cannot be deleted ({deleted.status_code}, then {status})"
    return None


async def secrets_kept(target: Target) -> str | None:
    name = (await target.sandbox())["sandbox_id"]
    variable, was_set = await _deleted_with_a_variable(target)
    password, ticket = secrets.token_hex(16), f"t_{secrets.token_hex(20)}"
    await target.member.post(
        "/sandboxes/create", json={"user_id": "doctor", "git_url": f"https://doctor:{password}@127.0.0.1:1/x.git"}
    )
    url = httpx.URL(target.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    asked = f"GET /sandboxes/{name}/terminal?ticket={ticket} HTTP/1.1\r\nHost: {url.host}\r\nConnection: Upgrade\r\n"
    asked += f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
    writer.write(asked.encode())
    await asyncio.wait_for(reader.read(1), REQUEST_TIMEOUT_S)
    writer.close()
    (await target.admin.get("/sandboxes")).raise_for_status()
    written = await asyncio.to_thread(_written, target.home)
    for what, secret in (("a password", password), ("a ticket", ticket), ("a key", target.key)):
        if found := [path for path, content in written.items() if secret.encode() in content]:
            return f"{what} was written into {found[0]}"
    if not was_set:
        return "a sandbox lacks the variable that it was made with, so nothing is known of what is left of it"
    until = time.monotonic() + _WIPED_S
    while found := [path for path, content in written.items() if variable.encode() in content]:
        if time.monotonic() > until:
            return f"a variable of a deleted sandbox is left in {found[0]}"
        await asyncio.sleep(_LOOK_S)
        written = await asyncio.to_thread(_written, target.home)
    return None


async def _deleted_with_a_variable(target: Target) -> tuple[str, bool]:
    """Deletes the sandbox; returns whether its secret had been stored before."""
    value = secrets.token_hex(20)
    made = await target.sandbox(env={"DOCTORS_VALUE": value})
    seen = await target.tool(made["sandbox_id"], "run_command", command='test -n "$DOCTORS_VALUE" && echo it is set')
    (await target.member.delete(f"/sandboxes/{made['sandbox_id']}")).raise_for_status()
    return value, "it is set" in str(seen)


def _written(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "log", *home.glob("paddock.db*")) if path.is_file()}
