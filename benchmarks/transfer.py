"""Upload and download of a large file through the file API, beside copies of the same file without a server."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path

from rich.progress import track

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.tables import median, progress, table
from benchmarks.wire import Wire

_PLACE = "/workspace/large"
_COPY = "/workspace/copy"
_BLOCK = 1 << 20
_ROUNDS = 3
_TIMEOUT = 600


async def files(home: Path, template: Template, megabytes: int) -> None:
    """The client is one blocking socket with sendfile, so that the server is what is measured."""
    folder = home / "files"
    async with local_server(folder, template) as server:
        wire = await Wire.open(server.port)
        box = await server.create(wire, resources={"disk_mb": 4 * megabytes})
        source = home / "large"
        digest = _make(source, megabytes)
        steps: dict[str, Callable[[], None]] = {
            "up: `PUT /sandboxes/{id}/files`": lambda: _upload(server, box, source),
            "down: `GET /sandboxes/{id}/files`": lambda: _download(server, box, source.stat().st_size),
            "`cp` on the host": lambda: _copy(source, home / "copied"),
        }
        taken: dict[str, list[float]] = {name: [] for name in (*steps, "`cp` in the sandbox")}
        grown = dict.fromkeys(steps, 0)
        for _ in track(range(_ROUNDS), "files", console=progress, transient=True):
            for name, step in steps.items():
                base = _forget_peak(server.pid)
                began = time.perf_counter()
                step()
                taken[name].append(time.perf_counter() - began)
                grown[name] = max(grown[name], _peak(server.pid) - base)
            taken["`cp` in the sandbox"].append(await _inside(server, wire, box))
        if await _digest(server, wire, box) != digest:
            raise RuntimeError("the file arrived changed")
        await server.delete(wire, [box])
    rows = []
    for name, seconds in taken.items():
        growth = f"{grown[name] / 1e6:.1f}" if name in grown and "cp" not in name else ""
        rows.append([name, f"{(megabytes << 20) / 1e6 / median(seconds):,.0f}", growth])
    note = f"Median of {_ROUNDS}; the contents were compared. The sandbox has the default limits of memory and CPU."
    table(f"A file of {megabytes} MiB", ["", "MB/s", "server's peak memory, MB more"], rows, note)


def _make(path: Path, megabytes: int) -> str:
    digest = hashlib.sha256()
    block = bytearray(hashlib.shake_256(b"paddock").digest(_BLOCK))
    with path.open("wb") as file:
        for number in range(megabytes):
            block[:8] = number.to_bytes(8, "big")  # all different
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def _upload(server: LocalServer, box: str, source: Path) -> None:
    with _connection(server) as connection, source.open("rb") as file:
        size = source.stat().st_size
        connection.sendall(_head(server, "PUT", box, f"Content-Length: {size}\r\n"))
        connection.sendfile(file)
        answer = HTTPResponse(connection)
        answer.begin()
        body = answer.read()
    if answer.status != 200 or json.loads(body)["file"]["size"] != size:
        raise RuntimeError(f"the upload failed: {answer.status} {body!r}")


def _download(server: LocalServer, box: str, size: int) -> None:
    room = memoryview(bytearray(_BLOCK))
    with _connection(server) as connection:
        connection.sendall(_head(server, "GET", box, ""))
        answer = HTTPResponse(connection)
        answer.begin()
        received = 0
        while count := answer.readinto(room):
            received += count
    if answer.status != 200 or received != size:
        raise RuntimeError(f"the download ended with {answer.status} after {received} of {size} bytes")


def _connection(server: LocalServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), _TIMEOUT)


def _head(server: LocalServer, method: str, box: str, more: str) -> bytes:
    target = f"/sandboxes/{box}/files?path={_PLACE}"
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {server.key}\r\n{more}\r\n".encode()


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    subprocess.run([shutil.which("cp") or "/bin/cp", "--reflink=never", source, target], check=True)


async def _inside(server: LocalServer, wire: Wire, box: str) -> float:
    began = time.perf_counter()
    await _run(server, wire, box, f"cp {_PLACE} {_COPY}")
    taken = time.perf_counter() - began
    await _run(server, wire, box, f"rm {_COPY}")
    return taken


async def _digest(server: LocalServer, wire: Wire, box: str) -> str:
    return (await _run(server, wire, box, f"sha256sum {_PLACE}")).split()[0]


async def _run(server: LocalServer, wire: Wire, box: str, command: str) -> str:
    answer = json.loads(await wire.ask(server.command(box, command)))
    if answer["exit_code"] != 0:
        raise RuntimeError(f"{command} failed: {answer['output']}")
    return str(answer["stdout"])


def _forget_peak(pid: int) -> int:
    """Reset the kernel's peak of the process's memory; returns the current value."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status(pid, "VmRSS")


def _peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024
