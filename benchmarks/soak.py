"""An hour's worth of mixed load in ten minutes: does anything grow that should not?

    python -m benchmarks.soak [--minutes 10] [--clients 6]

Accelerated: nobody pauses between requests, sandboxes live for seconds, and everything that a server does now and then
or keeps for a while (reconciling, retentions, records, events, spools) is done six times and more as often, or kept for
as much shorter. What is kept by design must therefore be full after the first third, and flat from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.soak_load import Load, write_without_pause
from benchmarks.tables import machine, progress, table
from benchmarks.wire import Wire, request

_SETTINGS = {
    "PADDOCK_SCHEDULER_INTERVAL": "0.1",
    "PADDOCK_RECONCILE_INTERVAL": "5",
    "PADDOCK_PAUSED_RETENTION": "20",
    "PADDOCK_DELETED_RETENTION": "60",
    "PADDOCK_DELETED_KEPT": "200",
    "PADDOCK_EVENTS_KEPT": "200",
    "PADDOCK_USER_EVENTS_KEPT": "20000",
    "PADDOCK_OUTPUT_SPOOL": str(1 << 20),
    "PADDOCK_STALL_TIMEOUT": "5",
}
_SAMPLE_S = 3.0
_STATUS = ("VmRSS", "Threads")
_MB = 1e6
_STALLS = "event loop stalls so far"
_MAX_STALLS_PER_MINUTE = 1.0
"""Stalls of a tenth of a second: a loaded machine causes about that many, a server that blocks its loop many more."""
_WRITERS = 8
_GROWTH, _SLACK = 1.1, {"memory, MB": 5.0, "descriptors": 15.0, "threads": 4.0, "database, MB": 2.0}
"""The last third may be a tenth above the one before, or by this much, which varying load causes."""


@dataclass(frozen=True, slots=True)
class Sample:
    values: dict[str, float]


async def soak(home: Path, minutes: float, clients: int, seed: int) -> None:
    async with local_server(home / "soak", Template(), pool=2, **_SETTINGS) as server:
        load = Load(server, seed)
        samples: list[Sample] = []
        async with load.running(clients):
            before = time.perf_counter()
            while time.perf_counter() - before < 60 * minutes:
                await asyncio.sleep(_SAMPLE_S)
                samples.append(await _sample(server, load))
                _say(samples[-1], load)
        _tell(samples, load, minutes)
        await _write_ahead_log(server, minutes)


async def _write_ahead_log(server: LocalServer, minutes: float) -> None:
    """Continuous writers and readers: the maximum size of the log, and its size afterwards."""
    sizes: list[float] = []
    seconds = 6 * minutes
    writing = asyncio.create_task(write_without_pause(server, seconds, _WRITERS))
    while not writing.done():
        sizes.append(_size(server.home / "paddock.db-wal") / _MB)
        await asyncio.wait({writing}, timeout=0.1)
    requests = await writing
    await asyncio.sleep(12)  # an idle database empties its log
    rows = [
        ["largest", f"{max(sizes):.1f}"],
        ["median", f"{statistics.median(sizes):.1f}"],
        ["12 s after the last write", f"{_size(server.home / 'paddock.db-wal') / _MB:.1f}"],
        ["(the database)", f"{_size(server.home / 'paddock.db') / _MB:.1f}"],
    ]
    note = f"{_WRITERS} clients that write and 2 that read, without a pause: {requests} requests in {seconds:.0f} s."
    table("SQLite's write-ahead log under continuous writers", ["", "MB"], rows, note)


async def _sample(server: LocalServer, load: Load) -> Sample:
    process = Path(f"/proc/{server.pid}")
    lines = (process / "status").read_text().splitlines()
    status = {
        name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if name in _STATUS
    }
    wire = await Wire.open(server.port)  # a new connection each time, as from a monitoring system
    try:
        health = json.loads(await wire.ask(request("GET", "/health")))
    except RuntimeError as error:
        load.wrong.append(f"not healthy: {error}; {_log_tail(server)}")
        health = {"loop_stalls": 0}
    wire.close()
    local = server.home / "local"
    return Sample(
        {
            "memory, MB": status["VmRSS"] * 1024 / _MB,
            "descriptors": sum(1 for _ in (process / "fd").iterdir()),
            "threads": status["Threads"],
            "database, MB": _size(server.home / "paddock.db") / _MB,
            "write-ahead log, MB": _size(server.home / "paddock.db-wal") / _MB,
            "server's log, MB": _size(server.home / "log") / _MB,
            "notes, MB": sum(_size(file) for file in (server.home / "notes").iterdir()) / _MB,
            "sandboxes": sum(1 for _ in (local / "sandboxes").iterdir()),
            "disk images and spools, MB": sum(_blocks(file) for file in (local / "sandboxes").glob("*/disk.img")) / _MB,
            "drafts and trash": sum(1 for name in ("drafts", "trash") for _ in (local / name).iterdir()),
            "loop devices": sum(1 for _ in Path("/sys/block").glob("loop*/loop/backing_file")),
            _STALLS: health["loop_stalls"],
        }
    )


def _log_tail(server: LocalServer) -> str:
    return (server.home / "log").read_text(errors="replace")[-1500:]


def _tell(samples: Sequence[Sample], load: Load, minutes: float) -> None:
    third = len(samples) // 3
    parts = [samples[:third], samples[third : 2 * third], samples[2 * third :]]
    rows = []
    for name in samples[0].values:
        means = [statistics.mean(sample.values[name] for sample in part) for part in parts]
        most = max(sample.values[name] for sample in samples)
        verdict = _verdict(means, _SLACK.get(name, 1.0))
        if name == _STALLS:
            verdict = _verdict_of_stalls(samples, minutes)
        rows.append([name, *(f"{mean:.1f}" for mean in means), f"{most:.1f}", verdict])
    total = load.counts.total()
    done = ", ".join(f"{count} × {name}" for name, count in load.counts.most_common())
    notes = [
        f"{total} actions in {minutes:g} minutes ({done}). Answers without explanation: {len(load.wrong)}.",
        f"{machine()}.",
        f"Refused because the sandbox was just paused or deleted: {dict(load.refused.most_common())}.",
        *(f"Unexplained: {wrong}" for wrong in load.wrong[:10]),
    ]
    table("An hour's load in ten minutes", ["mean of", "first third", "middle", "last", "most", "flat?"], rows, *notes)


def _verdict(means: Sequence[float], slack: float) -> str:
    _, middle, last = means
    return "flat" if last <= max(middle * _GROWTH, middle + slack) else "**grows**"


def _verdict_of_stalls(samples: Sequence[Sample], minutes: float) -> str:
    """The count only grows, so its rate is compared."""
    stalls = samples[-1].values[_STALLS] - samples[0].values[_STALLS]
    return "rare" if stalls <= _MAX_STALLS_PER_MINUTE * minutes else "**often**"


def _say(sample: Sample, load: Load) -> None:
    shown = ", ".join(f"{name} {value:.0f}" for name, value in sample.values.items())
    progress.print(f"{load.counts.total()} actions, {len(load.wrong)} wrong; {shown}", soft_wrap=True, highlight=False)


def _quietly(look: Callable[[Path], int]) -> Callable[[Path], int]:
    def looked(file: Path) -> int:
        try:
            return look(file)
        except FileNotFoundError:
            return 0  # deleted meanwhile

    return looked


_size = _quietly(lambda file: file.stat().st_size)
_blocks = _quietly(lambda file: file.stat().st_blocks * 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paddock-soak-") as home:
        asyncio.run(soak(Path(home), given.minutes, given.clients, given.seed))


if __name__ == "__main__":
    main()
