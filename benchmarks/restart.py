"""A server with many sandboxes is killed: time until the restarted server answers, and until commands in all sandboxes
work.

python -m benchmarks.restart [--sandboxes 500] [--runs 5]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

from rich.progress import track

from benchmarks.local_server import LocalServer, Template, local_server, started
from benchmarks.tables import machine, median, milliseconds, progress, table
from benchmarks.wire import request

_CLIENTS = 8


async def measure(home: Path, count: int, runs: int) -> None:
    template = Template()
    alone, first, every = [], [], []
    async with local_server(home / "restart", template) as server:
        _kill(server)
        for _ in range(runs):  # without sandboxes: the cost of the start itself
            alone.append(await _restart(server, []))
        async with started(server.home, template) as making:
            (wire,) = await making.wires(1)
            boxes = [
                await making.create(wire) for _ in track(range(count), "sandboxes", console=progress, transient=True)
            ]
            _kill(making)
        for _ in range(runs):
            health, all_of_them = await _restart(server, boxes)
            first.append(health)
            every.append(all_of_them)
    rows = [
        ["until /health answers, no sandbox", milliseconds(median([one for one, _ in alone]))],
        [f"until /health answers, {count} sandboxes alive", milliseconds(median(first))],
        [f"until a command in each of {count} has answered, {_CLIENTS} clients", milliseconds(median(every))],
    ]
    note = f"From the start of the process, median of {runs}. A server is killed (SIGKILL) each time. {machine()}."
    table("A server that starts again", ["", "ms"], rows, note)


async def _restart(server: LocalServer, boxes: list[str]) -> tuple[float, float]:
    """Seconds until the first answer, and until every sandbox has run a command."""
    began = time.perf_counter()
    async with started(server.home, server.template) as again:
        wires = await again.wires(_CLIENTS)
        await wires[0].ask(request("GET", "/health"))
        health = time.perf_counter() - began
        waiting = list(boxes)

        async def work(number: int) -> None:
            while waiting:
                await again.hello(wires[number], waiting.pop())

        await asyncio.gather(*(work(number) for number in range(_CLIENTS)))
        all_of_them = time.perf_counter() - began
        _kill(again)
    return health, all_of_them


def _kill(server: LocalServer) -> None:
    os.kill(server.pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paddock-restart-") as home:
        asyncio.run(measure(Path(home), given.sandboxes, given.runs))


if __name__ == "__main__":
    main()
