"""What the API costs: each call over HTTP beside a bare FastAPI answer and beside the provider's own cost, in one run.

Latencies are taken in interleaved rounds (every candidate once a round), one request at a time, so that noise of the
machine meets all alike; read the ratios, not the milliseconds. Servers run on one core, the client on another, and all
state is in memory (/dev/shm), so that the disk is not what is measured.

    python -m benchmarks.api_overhead [--rounds 200] [--seconds 3] [--rows 10 1000 100000] [--million]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.servers import CLIENT_CORE, hello, paddock, pin, prepare
from benchmarks.wire import Wire, request, throughput
from paddock.ids import new_process_id, new_sandbox_id, new_sandbox_key
from paddock.machine.base import ProcessSpec
from paddock.providers.base import SandboxSpec
from paddock.providers.local import LocalProvider

console = Console()
Probe = Callable[[], Awaitable[float]]


async def measure(options: argparse.Namespace) -> None:
    pin(CLIENT_CORE)
    with ExitStack() as stack:
        memory = Path("/dev/shm")
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)))
        keys: dict[str, str] = {}
        homes: dict[str, Path] = {}
        wanted = {f"{rows:,} rows": (rows, 0) for rows in options.rows}
        if options.million:
            wanted["1,000,000 deleted"] = (10, 1_000_000)
        for name, (rows, deleted) in track(wanted.items(), "filling databases", console=console, transient=True):
            homes[name] = base / name.replace(",", "").replace(" ", "-")
            keys[name] = await prepare(homes[name], rows, deleted=deleted)
        ports = {name: stack.enter_context(paddock(home)) for name, home in homes.items()}
        floor = stack.enter_context(hello())
        first = next(iter(ports))
        async with _direct(base) as alone:
            await latencies(options, floor, ports, keys, alone)
        await rates(options, floor, ports[first], keys[first])


async def latencies(
    options: argparse.Namespace, floor: int, ports: dict[str, int], keys: dict[str, str], alone: dict[str, Probe]
) -> None:
    probes: dict[str, Probe] = {}
    wire = await Wire.open(floor)
    probes["bare FastAPI hello"] = lambda: wire.timed(request("GET", "/"))
    first = next(iter(ports))
    box = await _sandbox(await Wire.open(ports[first]), keys[first])
    calls = await Wire.open(ports[first])
    status = request("GET", f"/sandboxes/{box}/status", keys[first])
    probes["status"] = lambda: calls.timed(status)
    run = request("POST", "/sandboxes/run-command", keys[first], {"sandbox_id": box, "command": "true"})
    probes["run-command `true`"] = lambda: calls.timed(run)
    probes |= alone
    for name, port in ports.items():
        own = await Wire.open(port)
        listing = request("GET", "/sandboxes?limit=10", keys[name])
        probes[f"list, {name}"] = lambda own=own, listing=listing: own.timed(listing)  # type: ignore[misc]
        probes[f"create, {name}"] = _create_probe(own, keys[name])
    times: dict[str, list[float]] = {name: [] for name in probes}
    for round_number in track(range(options.rounds + 10), "latencies", console=console, transient=True):
        for name, probe in probes.items():
            taken = await probe()
            if round_number >= 10:  # the first rounds warm up
                times[name].append(taken)
    _print_latencies(times)


def _create_probe(wire: Wire, key: str) -> Probe:
    """Measures the create; the sandbox is deleted outside the measurement."""

    async def probe() -> float:
        started = time.perf_counter()
        answer = await wire.ask(request("POST", "/sandboxes/create", key, {"user_id": "bench"}))
        taken = time.perf_counter() - started
        await wire.ask(request("DELETE", f"/sandboxes/{json.loads(answer)['sandbox_id']}", key))
        return taken

    return probe


async def _sandbox(wire: Wire, key: str) -> str:
    answer = await wire.ask(request("POST", "/sandboxes/create", key, {"user_id": "bench"}))
    return str(json.loads(answer)["sandbox_id"])


@asynccontextmanager
async def _direct(base: Path) -> AsyncIterator[dict[str, Probe]]:
    """The local provider's own time, called in this process without a server."""
    provider = LocalProvider(base / "direct" / "local")
    await provider.start()

    def spec() -> SandboxSpec:
        sandbox_id = new_sandbox_id("bench")
        return SandboxSpec(sandbox_id, new_sandbox_key(), "bench", "bench", "host")

    box = spec()
    await provider.create(box)
    machine = await provider.attach(box.sandbox_id)

    async def create() -> float:
        new = spec()
        started = time.perf_counter()
        await provider.create(new)
        taken = time.perf_counter() - started
        await provider.delete(new.sandbox_id)
        return taken

    async def run() -> float:
        process = ProcessSpec(new_process_id(), ["/bin/bash", "-c", "true"])
        started = time.perf_counter()
        await machine.run(process)
        return time.perf_counter() - started

    try:
        yield {"(provider alone: create)": create, "(provider alone: run `true`)": run}
    finally:
        await provider.delete(box.sandbox_id)
        await provider.close()


def _print_latencies(times: dict[str, list[float]]) -> None:
    floor = statistics.median(times["bare FastAPI hello"])
    table = Table(
        "call", "p50 ms", "p99 ms", "x hello", title=f"Latency, one at a time, n={len(next(iter(times.values())))}"
    )
    for name, taken in times.items():
        median = statistics.median(taken)
        p99 = statistics.quantiles(taken, n=100)[98]
        table.add_row(name, f"{median * 1000:.2f}", f"{p99 * 1000:.2f}", f"{median / floor:.1f}")
    console.print(table)


async def rates(options: argparse.Namespace, floor: int, port: int, key: str) -> None:
    box = await _sandbox(await Wire.open(port), key)
    candidates = {
        "bare FastAPI hello": (floor, request("GET", "/")),
        "health": (port, request("GET", "/health")),
        "status": (port, request("GET", f"/sandboxes/{box}/status", key)),
        "list of 10": (port, request("GET", "/sandboxes?limit=10", key)),
        "run-command `true`": (
            port,
            request("POST", "/sandboxes/run-command", key, {"sandbox_id": box, "command": "true"}),
        ),
    }
    seen: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in track(range(3), "throughput", console=console, transient=True):
        for name, (where, message) in candidates.items():
            seen[name].append(await throughput(where, message, options.seconds, connections=16))
    best = statistics.median(seen["bare FastAPI hello"])
    table = Table("call", "requests/s", "of hello", title="Throughput on one core, 16 connections, median of 3")
    for name, values in seen.items():
        median = statistics.median(values)
        table.add_row(name, f"{median:,.0f}", f"{median / best:.0%}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="rounds of the latency part")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each throughput window")
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 1000, 100_000], help="sizes of the database")
    parser.add_argument("--million", action="store_true", help="also a database with a million deleted rows")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
