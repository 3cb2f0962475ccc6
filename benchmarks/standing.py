"""The cost of idle sandboxes: memory of each, and the effect of hundreds on the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.spawned import spawn
from benchmarks.tables import median, memory_info, milliseconds, p99, progress, table
from benchmarks.wire import Wire

_IDLE = 100
_KERNEL = ("Slab", "KernelStack", "PageTables", "Percpu")
_FILES = ("Cached", "Buffers")
_SAMPLES = 20
_PIECE = 50


async def memory(home: Path, template: Template) -> None:
    """A hundred idle sandboxes, and the machine's available memory with and without them."""
    async with local_server(home / "memory", template) as server:
        wire = await Wire.open(server.port)
        first = await server.create(wire)  # one-time allocations are not counted
        await server.hello(wire, first)
        before = await _reading(server.pid)
        boxes = [
            await server.create(wire) for _ in track(range(_IDLE), "idle sandboxes", console=progress, transient=True)
        ]
        with_them = await _reading(server.pid)
        agents = _inside([server.record(box)["running"]["pid"] for box in boxes])
        pss = sum(_rollup(pid, "Pss") for pid in agents)
        private = sum(_rollup(pid, "Private_Clean") + _rollup(pid, "Private_Dirty") for pid in agents)
        await server.delete(wire, boxes)
        after = await _reading(server.pid)

    def each(value: int) -> str:
        return f"{value / _IDLE / 1e6:.3f}"

    grown = {name: with_them[name] - before[name] for name in with_them}
    rows = [
        ["**all told**: what the machine has less available with them", each(-grown["MemAvailable"])],
        ["the same, by what their deletion gives back", each(after["MemAvailable"] - with_them["MemAvailable"])],
        [f"kernel ({', '.join(_KERNEL)})", each(sum(grown[name] for name in _KERNEL))],
        ["page cache, which the kernel takes back when it needs it", each(sum(grown[name] for name in _FILES))],
        [f"processes inside ({len(agents) / _IDLE:g}): PSS", each(pss)],
        ["processes inside: private", each(private)],
        ["server process: private", each(grown["server"])],
    ]
    note = "What other programs took or gave back meanwhile is in the first four lines, too."
    table(f"Memory of an idle sandbox (mean of {_IDLE})", ["", "MB"], rows, note)


async def many(home: Path, template: Template, count: int) -> None:
    """Many live sandboxes: the last create beside the first, and commands among them."""
    async with local_server(home / "many", template) as server:
        wire = await Wire.open(server.port)
        await server.delete(wire, [await server.create(wire)])
        creates: list[float] = []
        bare: list[float] = []
        alone: list[float] = []
        boxes: list[str] = []
        started = time.perf_counter()
        for _ in track(range(count), f"{count} alive", console=progress, transient=True):
            began = time.perf_counter()
            boxes.append(await server.create(wire))
            creates.append(time.perf_counter() - began)
            bare.append(spawn(["/bin/echo", "hi"])[0].end)
            if len(boxes) == 1:
                alone = [await server.hello(wire, boxes[0]) for _ in range(_PIECE)]
                started = time.perf_counter()
        whole = time.perf_counter() - started
        same = [await server.hello(wire, boxes[0]) for _ in range(_PIECE)]
        among = await _spread(server, wire, boxes)
        began = time.perf_counter()
        await server.delete(wire, boxes)
        ended = time.perf_counter() - began
    first, last = creates[:_PIECE], creates[-_PIECE:]
    rows = [
        _row(f"create, the first {_PIECE}", first, first),
        _row(f"create, the last {_PIECE}", last, first),
        _row(f"(bare fork+exec beside the first {_PIECE})", bare[:_PIECE], bare[:_PIECE]),
        _row(f"(bare fork+exec beside the last {_PIECE})", bare[-_PIECE:], bare[:_PIECE]),
        _row("command, one alive", alone, alone),
        _row(f"command in the same one, {count} alive", same, alone),
        _row(f"command, each in another of the {count}, its second", among, alone),
    ]
    note = (
        f"All {count} were made in {whole:.1f} s and deleted in {ended:.1f} s, one after another, by one client. What "
        "the bare program became slower by is the machine's doing."
    )
    table(f"{count} live sandboxes", ["", "p50 ms", "p99 ms", "×"], rows, note)


def _row(name: str, values: Sequence[float], base: Sequence[float]) -> list[str]:
    ratio = median(values) / median(base)
    return [name, milliseconds(median(values)), milliseconds(p99(values)), f"{ratio:.2f}"]


async def _spread(server: LocalServer, wire: Wire, boxes: Sequence[str]) -> list[float]:
    """One command in each of a hundred sandboxes, after an unmeasured one that connects to it."""
    chosen = boxes[:: max(1, len(boxes) // 100)]
    for box in chosen:
        await server.hello(wire, box)
    return [await server.hello(wire, box) for box in chosen]


async def _reading(server: int) -> dict[str, int]:
    """Medians over two seconds, so that a recent change settles."""
    names = ("MemAvailable", *_KERNEL, *_FILES)
    seen: dict[str, list[int]] = {name: [] for name in (*names, "server")}
    for _ in range(_SAMPLES):
        await asyncio.sleep(0.1)
        for name in names:
            seen[name].append(memory_info(name))
        seen["server"].append(_rollup(server, "Private_Clean") + _rollup(server, "Private_Dirty"))
    return {name: int(median(values[_SAMPLES // 2 :])) for name, values in seen.items()}


def _inside(agents: Sequence[int]) -> list[int]:
    """All processes in the namespaces of these sandboxes."""
    spaces = {Path(f"/proc/{pid}/ns/pid").readlink() for pid in agents}
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                if (path / "ns/pid").readlink() in spaces:
                    found.append(int(path.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has just ended, or belongs to another user
    return found


def _rollup(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
