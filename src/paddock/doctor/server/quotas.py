"""Attacks on shared resources: more than the machine has, more than a quota through pausing, and the server's
memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import httpx

from paddock.doctor.server.target import REQUEST_TIMEOUT_S, RESPONSIVE_S, Target

_UNREAD_BYTES = 30 << 20
_UNREAD_ANSWERS = 24
_MAX_HELD_BYTES = 384 << 20
"""Maximum growth of the server for answers that one member does not read: 256 MB by its settings
(``PADDOCK_USER_BYTES_IN_FLIGHT``), and a margin for other work."""
_RESET_PEAK = "5"
"""For ``/proc/PID/clear_refs``: see proc(5)."""


@dataclass(frozen=True, slots=True)
class _Resource:
    quota: str
    name: str
    most: int
    each: int
    """More than half of what is available."""


_HELD_WHILE_PAUSED = (
    _Resource("max_disk_mb", "disk_mb", 100, 64),
    _Resource("max_memory_mb", "memory_mb", 300, 200),
    _Resource("max_processes", "pids", 100, 64),
)


async def oversized(target: Target) -> str | None:
    for resource in ("memory_mb", "cpu", "disk_mb", "pids"):
        body = {"user_id": "doctor", "resources": {resource: 1 << 40}}
        answer = await target.member.post("/sandboxes/create", json=body)
        if answer.status_code != httpx.codes.UNPROCESSABLE_ENTITY:
            return f"a sandbox with {1 << 40} of {resource} is not refused ({answer.status_code})"
    return None


async def paused(target: Target) -> str | None:
    """A member with a quota of one sandbox pauses it and requests another."""
    for held in _HELD_WHILE_PAUSED:
        user = f"saver_{held.name}"
        wanted = {"user_id": user, "resources": {held.name: held.each}}
        async with await target.user(user, **{held.quota: held.most}) as saver:
            first = (await saver.post("/sandboxes/create", json=wanted)).raise_for_status().json()["sandbox_id"]
            (await saver.post("/sandboxes/pause", json={"sandbox_id": first})).raise_for_status()
            second = await saver.post("/sandboxes/create", json=wanted)
            if second.status_code != httpx.codes.TOO_MANY_REQUESTS:
                return f"what a paused sandbox has of {held.name} counts for nothing ({second.status_code})"
    return None


async def unread(target: Target) -> str | None:
    """The server's memory is read from the kernel, not from its own accounting."""
    name, path = (await target.sandbox())["sandbox_id"], "/workspace/large"
    large = await target.member.put(f"/sandboxes/{name}/files", params={"path": path}, content=b"x" * _UNREAD_BYTES)
    large.raise_for_status()
    body = json.dumps({"sandbox_id": name, "path": path})
    head = f"POST /sandboxes/read-file HTTP/1.1\r\nHost: doctor\r\nX-API-Key: {target.key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    before = _peak_bytes(target.pid, begin=True)
    with contextlib.ExitStack() as stack:
        for _ in range(_UNREAD_ANSWERS):
            connection = stack.enter_context(socket.create_connection(target.address, REQUEST_TIMEOUT_S))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall((head + body).encode())
            await asyncio.to_thread(connection.recv, 12)
        health = await target.admin.get("/health", timeout=RESPONSIVE_S)
        held = _peak_bytes(target.pid) - before
    if health.status_code != httpx.codes.OK:
        return f"beside answers that are not read others are told {health.status_code}"
    if held > _MAX_HELD_BYTES:
        return f"the server grew by {held >> 20} MB for answers that are not read"
    return None


def _peak_bytes(pid: int, *, begin: bool = False) -> int:
    """Peak memory of the process, since its start or since ``begin``."""
    if begin:
        with contextlib.suppress(OSError):  # a kernel without it
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None  # noqa: S101 - every process that lives has one
    return int(found[1]) << 10
