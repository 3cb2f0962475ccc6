"""What MCP costs: a tool called over it beside the same over the plain API, and the memory of many sandboxes with it.

Both are asked in turn within one run, so that noise of the machine meets them alike. Memory is the server's own, since
nothing runs in a sandbox for MCP: after so many creates, and after MCP was used in each.

    python -m benchmarks.mcp [--rounds 500] [--sandboxes 100]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.tables import machine, median, milliseconds, p99, progress, table
from benchmarks.wire import Wire, request

_TOOL = "write_file"
_ARGUMENTS = {"path": "/workspace/bench.txt", "content": "hello"}
_SMALL = {"cpu": 0.1, "memory_mb": 64, "disk_mb": 64}


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with local_server(Path(folder) / "server", Template()) as server:
            wire = await Wire.open(server.port)
            print(f"{machine()}\n")
            box = await server.create(wire)
            await _latencies(server, wire, box, options.rounds)
            await server.delete(wire, [box])
        async with local_server(Path(folder) / "fresh", Template()) as server:
            await _memory(server, await Wire.open(server.port), options.sandboxes)


async def _latencies(server: LocalServer, wire: Wire, box: str, rounds: int) -> None:
    plain = request("POST", f"/sandboxes/{box}/tools/{_TOOL}", server.key, {"arguments": _ARGUMENTS})
    eras = {"over MCP, 2025-11-25": _handshake_era(server, box), "over MCP, 2026-07-28": _modern(server, box)}
    ways = {"plain API": plain, **eras}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for message in ways.values():
        await wire.ask(message)
    for _ in track(range(rounds), "calls", console=progress):
        for name, message in ways.items():
            taken[name].append(await wire.timed(message))
    rows = [(name, milliseconds(median(each)), milliseconds(p99(each))) for name, each in taken.items()]
    table(f"One call of `{_TOOL}`, {rounds} in turn, milliseconds", ("way", "median", "p99"), rows)


async def _memory(server: LocalServer, wire: Wire, count: int) -> None:
    empty = _resident(server)
    boxes = [await server.create(wire, resources=_SMALL) for _ in track(range(count), "creates", console=progress)]
    without = _resident(server)
    await wire.ask(_modern(server, boxes[0]))
    loaded = _resident(server)
    for box in track(boxes, "MCP in each", console=progress):
        await wire.ask(_modern(server, box))
        await wire.ask(_handshake_era(server, box))
    used = _resident(server)
    rows = [
        ("no sandbox", _megabytes(empty), ""),
        (f"{count} sandboxes without MCP", _megabytes(without), _each(without - empty, count)),
        ("and MCP loaded by the first request", _megabytes(loaded), ""),
        (f"{count} sandboxes with MCP used in each", _megabytes(used), _each(used - loaded, count)),
    ]
    table("Memory of the server", ("", "MB", "KB more for each"), rows)
    await server.delete(wire, boxes)


def _modern(server: LocalServer, box: str) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": _TOOL}
    return _call(server, box, {"_meta": meta}, headers)


def _handshake_era(server: LocalServer, box: str) -> bytes:
    return _call(server, box, {}, {"MCP-Protocol-Version": "2025-11-25"})


def _call(server: LocalServer, box: str, more: dict[str, Any], headers: dict[str, str]) -> bytes:
    params = {"name": _TOOL, "arguments": _ARGUMENTS, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    plain = request("POST", f"/p/{box}/6060/mcp/", server.key, body)
    given = {"Accept": "application/json, text/event-stream", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items()).encode()
    first, _, rest = plain.partition(b"\r\n")
    return first + b"\r\n" + lines + rest


def _resident(server: LocalServer) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def _each(more: int, count: int) -> str:
    return f"{more / count / 1e3:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--sandboxes", type=int, default=100)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
