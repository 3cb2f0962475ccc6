"""What the gateway costs: a server in a sandbox, through the gateway, beside the same server asked directly.

"Directly" is the same program on the host's own loopback, with nobody between it and the client. Both are asked in turn
within one run, so that noise of the machine meets them alike; read the differences and the ratios.

    python -m benchmarks.gateway [--rounds 1000] [--megabytes 512]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

from rich.progress import track

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.tables import machine, median, milliseconds, p99, progress, table
from benchmarks.wire import Wire, request

_PROGRAM = Path(__file__).with_name("port_server.py")
_PORT = 3000
_BULK_ROUNDS = 7
_BLOCK = memoryview(bytes(1 << 20))
_HI = b"HTTP/1.1 200 OK\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    """A server to request, and the headers that route a request to it."""

    port: int
    headers: str

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def head(self, line: str, more: str = "") -> bytes:
        return f"{line} HTTP/1.1\r\n{self.headers}{more}\r\n".encode()


async def measure(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = Target(stack.enter_context(_on_the_host()), "Host: localhost\r\n")
        async with local_server(home / "server", Template()) as server:
            wire = await Wire.open(server.port)
            box = await server.create(wire, resources={"cpu": 2})
            key = await _start(server, wire, box)
            headers = f"Host: {_PORT}-{key}.localhost:{server.port}\r\nX-API-Key: {server.key}\r\n"
            through = Target(server.port, headers)
            print(f"{machine()}\n")
            await asyncio.to_thread(_latencies, direct, through, options.rounds)
            await asyncio.to_thread(_bulk, direct, through, options.megabytes << 20)
            await server.delete(wire, [box])


@contextmanager
def _on_the_host() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    with subprocess.Popen([sys.executable, _PROGRAM, str(port)], stdout=subprocess.PIPE) as process:
        if process.stdout is not None:
            process.stdout.readline()
        try:
            yield port
        finally:
            process.terminate()


async def _start(server: LocalServer, wire: Wire, box: str) -> str:
    """Start the server inside and wait until it listens. Returns the sandbox's key."""
    content = {"sandbox_id": box, "path": "/workspace/server.py", "content": _PROGRAM.read_text()}
    await wire.ask(request("POST", "/sandboxes/write-file", server.key, content))
    command = {"command": f"python3 /workspace/server.py {_PORT}"}
    await wire.ask(request("POST", f"/sandboxes/{box}/processes", server.key, command))
    listens = f"until (: < /dev/tcp/127.0.0.1/{_PORT}) 2>/dev/null; do sleep 0.05; done"
    await wire.ask(server.command(box, listens))
    return str(json.loads(await wire.ask(request("GET", f"/sandboxes/{box}", server.key)))["key"])


def _latencies(direct: Target, through: Target, rounds: int) -> None:
    steps: dict[str, Callable[[Target], Iterator[float]]] = {
        "`GET`, connection kept": _kept,
        "`POST` of 1 KiB, connection kept": _posts,
        "`GET`, new connection": _fresh,
        "64 bytes and back after an `Upgrade`": _echoes,
    }
    rows = []
    for name, step in steps.items():
        first, second = step(direct), step(through)
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in track(range(rounds), name, console=progress, transient=True):
            taken[0].append(next(first))
            taken[1].append(next(second))
        added = median(taken[1]) - median(taken[0])
        rows.append([name, *(milliseconds(median(times)) for times in taken), milliseconds(added)])
        rows[-1].append(milliseconds(p99(taken[1])))
    head = ["one request at a time", "direct, ms", "gateway, ms", "added, ms", "gateway p99, ms"]
    table("Latency", head, rows, f"Medians of {rounds}.")


def _kept(target: Target) -> Iterator[float]:
    message = target.head("GET /hello")
    with target.connect() as connection:
        while True:
            yield _round_trip(connection, message)


def _posts(target: Target) -> Iterator[float]:
    message = target.head("POST /up", "Content-Length: 1024\r\n") + bytes(1024)
    with target.connect() as connection:
        while True:
            yield _round_trip(connection, message)


def _fresh(target: Target) -> Iterator[float]:
    message = target.head("GET /hello")
    while True:
        began = time.perf_counter()
        with target.connect() as connection:
            _round_trip(connection, message)
            yield time.perf_counter() - began


def _echoes(target: Target) -> Iterator[float]:
    with target.connect() as connection:
        connection.sendall(target.head("GET /", "Connection: Upgrade\r\nUpgrade: echo\r\n"))
        if not connection.recv(4096).startswith(b"HTTP/1.1 101"):
            raise RuntimeError("the server did not switch protocols")
        while True:
            began = time.perf_counter()
            connection.sendall(bytes(64))
            left = 64
            while left:
                left -= len(connection.recv(left))
            yield time.perf_counter() - began


def _round_trip(connection: socket.socket, message: bytes) -> float:
    began = time.perf_counter()
    connection.sendall(message)
    answer = connection.recv(4096)
    taken = time.perf_counter() - began
    if not answer.startswith(_HI) or not answer.endswith((b"hi", b"ok")):
        raise RuntimeError(f"an odd answer: {answer!r}")
    return taken


def _bulk(direct: Target, through: Target, size: int) -> None:
    steps = {"out of the sandbox (`GET`)": _download, "into it (`POST`)": _upload}
    rows = []
    for name, step in steps.items():
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in track(range(_BULK_ROUNDS), name, console=progress, transient=True):
            for target, found in zip((direct, through), rates, strict=True):
                found.append(size / step(target, size))
        first, second = median(rates[0]), median(rates[1])
        rows.append([name, f"{first / 1e6:,.0f}", f"{second / 1e6:,.0f}", f"{second / first:.2f}"])
    head = ["", "direct, MB/s", "gateway, MB/s", "gateway / direct"]
    note = f"Medians of {_BULK_ROUNDS}. Client, gateway and server share the cores."
    table(f"Bulk, {size >> 20} MiB", head, rows, note)


def _download(target: Target, size: int) -> float:
    room = memoryview(bytearray(len(_BLOCK)))
    with target.connect() as connection:
        began = time.perf_counter()
        connection.sendall(target.head(f"GET /down?{size}"))
        answer = HTTPResponse(connection)
        answer.begin()
        received = 0
        while count := answer.readinto(room):
            received += count
        taken = time.perf_counter() - began
    if answer.status != 200 or received != size:
        raise RuntimeError(f"{answer.status} after {received} of {size} bytes")
    return taken


def _upload(target: Target, size: int) -> float:
    with target.connect() as connection:
        began = time.perf_counter()
        connection.sendall(target.head("POST /up", f"Content-Length: {size}\r\n"))
        left = size
        while left:
            left -= connection.send(_BLOCK[: min(left, len(_BLOCK))])
        answer = connection.recv(4096)
        taken = time.perf_counter() - began
    if not answer.startswith(_HI):
        raise RuntimeError(f"an odd answer: {answer!r}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=512)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
