"""Duration of a start and of a command: bare process, Docker, and Paddock's API, in turns within one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from benchmarks.engine import Engine
from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.spawned import spawn, spawn_each
from benchmarks.tables import median, milliseconds, p99, progress, table, times
from benchmarks.wire import Wire

MANY = 16
IN_A_ROW = 5
"""Number of runs of a candidate before the next one, so that its own cold caches are not what is measured."""
_WARM_UP = 2
ECHO = ["/bin/echo", "hi"]
PLAIN = " ".join(ECHO)
SHELL_ECHO = ["/bin/bash", "-c", "/bin/echo hi"]

Probe = Callable[[int, int], Awaitable[list[float]]]
"""Runs its operation so many times concurrently, so often in a row; returns the seconds of each."""
Taken = dict[str, dict[int, list[float]]]


async def starts(home: Path, template: Template, docker: Engine | None, rounds: int) -> None:
    """From nothing to the first output of a command."""
    async with AsyncExitStack() as stack:
        cold = await stack.enter_async_context(local_server(home / "cold", template))
        warm = await stack.enter_async_context(local_server(home / "warm", template, pool=MANY))
        probes: dict[str, Probe] = {"bare fork+exec": _first_output(ECHO)}
        if docker is not None:
            probes["`docker run`"] = _first_output(docker.run())
            probes["`docker run --network none`"] = _first_output(docker.run("--network", "none"))
        wires = await cold.wires(MANY), await warm.wires(MANY)
        probes["Paddock, cold: create, then command"] = _Starting(cold, wires[0]).measure
        probes["Paddock, cold: create with command"] = _Starting(cold, wires[0], at_once=True).measure
        probes["Paddock, pool: create, then command"] = _Starting(warm, wires[1], pooled=True).measure
        probes["Paddock, pool: create with command"] = _Starting(warm, wires[1], pooled=True, at_once=True).measure
        taken = await _rounds("starts", probes, rounds)
    _print(f"Start to first output of `{' '.join(ECHO)}`", taken, "`docker run`")


async def commands(home: Path, template: Template, docker: Engine | None, rounds: int) -> None:
    """A command in a running sandbox or container."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(local_server(home / "commands", template))
        wires = await server.wires(MANY)
        boxes = [await server.create(wires[0]) for _ in range(MANY)]
        probes: dict[str, Probe] = {"bare fork+exec": _to_the_end(ECHO), "bare, by a shell": _to_the_end(SHELL_ECHO)}
        if docker is not None:
            names = stack.enter_context(docker.containers(MANY))
            execs = [docker.exec(name) for name in names]
            probes["`docker exec`"] = _in_a_row(lambda count: [timing.end for timing in spawn_each(execs[:count])])

        def run(command: str) -> Probe:
            async def probe(count: int, times: int) -> list[float]:
                taken = []
                for _ in range(times):
                    pairs = zip(wires[:count], boxes[:count], strict=True)
                    taken += await asyncio.gather(*(server.hello(wire, box, command) for wire, box in pairs))
                return taken

            return probe

        probes["Paddock, run-command of plain words"] = run(PLAIN)
        probes["Paddock, run-command that needs a shell"] = run(f"{PLAIN}; :")
        taken = await _rounds("commands", probes, rounds, many_in_a_row=IN_A_ROW)
    _print(f"One command, `{' '.join(ECHO)}`, to its exit code", taken, "`docker exec`")


@dataclass(slots=True)
class _Starting:
    server: LocalServer
    wires: Sequence[Wire]
    pooled: bool = False
    at_once: bool = False
    begun: bool = False

    async def measure(self, count: int, times: int) -> list[float]:
        """Waiting for a full pool and deletion are not measured."""
        wires = self.wires[:count]
        if self.pooled and not self.begun:
            await self._ask_often()
        stock = await self.server.filled(wires[0], count * times) if self.pooled else set()
        once = self.server.first_output_at_once if self.at_once else self.server.first_output
        outcomes = []
        for _ in range(times):
            outcomes += await asyncio.gather(*(once(wire) for wire in wires))
        boxes = [sandbox_id for _, sandbox_id in outcomes]
        if self.pooled and not stock.issuperset(self.server.record(box)["reference"] for box in boxes):
            raise RuntimeError("a sandbox did not come from the pool")
        await self.server.delete(wires[0], boxes)
        if self.pooled:
            await self.server.filled(wires[0], count * times)  # so that refilling does not affect the next candidate
        return [seconds for seconds, _ in outcomes]

    async def _ask_often(self) -> None:
        """A pool grows by demand, so request at the rate of the measurement."""
        for _ in range(2):
            boxes = [await self.server.create(wire) for wire in self.wires]
            await self.server.delete(self.wires[0], boxes)
        self.begun = True


def _first_output(argv: Sequence[str]) -> Probe:
    return _in_a_row(lambda count: [timing.first_output for timing in spawn(argv, count=count)])


def _to_the_end(argv: Sequence[str]) -> Probe:
    return _in_a_row(lambda count: [timing.end for timing in spawn(argv, count=count)])


def _in_a_row(once: Callable[[int], list[float]]) -> Probe:
    async def probe(count: int, times: int) -> list[float]:
        return [seconds for _ in range(times) for seconds in once(count)]

    return probe


async def _rounds(name: str, probes: Mapping[str, Probe], rounds: int, many_in_a_row: int = 1) -> Taken:
    """Every candidate in turn; with many at once there are fewer rounds, for about as many values.

    Starts use a pool of ``MANY`` machines, so one batch is a turn there.
    """
    taken: Taken = {probe: {1: [], MANY: []} for probe in probes}
    for count, row, number in (
        (1, IN_A_ROW, max(3, rounds // IN_A_ROW)),
        (MANY, many_in_a_row, max(3, 2 * rounds // MANY)),
    ):
        title = f"{name}, {count} at once"
        for step in track(range(number + _WARM_UP), title, console=progress, transient=True):
            for probe, measure in probes.items():
                values = await measure(count, row)
                if step >= _WARM_UP:
                    taken[probe][count] += values
    return taken


def _print(title: str, taken: Taken, rival: str) -> None:
    bare = {count: median(taken["bare fork+exec"][count]) for count in (1, MANY)}
    head = ["", "1 at once: p50 ms", "p99 ms", "× bare", f"{MANY} at once: p50 ms", "p99 ms", "× bare"]
    compared = rival in taken
    if compared:
        head += [f"{rival} / it, 1", f"{rival} / it, {MANY}"]
    rows = []
    for name, values in taken.items():
        row = [name]
        for count in (1, MANY):
            middle = median(values[count])
            row += [milliseconds(middle), milliseconds(p99(values[count])), times(middle / bare[count])]
        if compared:
            row += [times(median(taken[rival][count]) / median(values[count])) for count in (1, MANY)]
        rows.append(row)
    counts = next(iter(taken.values()))
    note = f"n = {len(counts[1])} one at a time and {len(counts[MANY])} in batches of {MANY}."
    table(title, head, rows, note)
