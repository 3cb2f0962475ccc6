"""The cost of gVisor's kernel: a hardened sandbox beside an ordinary one, at the provider, in one run.

    python -m benchmarks.gvisor [--rounds 30]

Needs root and ``runsc`` (``PADDOCK_RUNSC`` and ``PADDOCK_RUNSC_PLATFORM`` select it). Neither side uses a pool.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.progress import track

from benchmarks.tables import machine, median, milliseconds, p99, progress, table, times
from paddock import errors
from paddock.ids import new_process_id, new_sandbox_id, new_sandbox_key
from paddock.machine.base import Machine, ProcessSpec
from paddock.providers.base import IsolationLevel, SandboxSpec
from paddock.providers.local import LocalProvider
from paddock.providers.local.gvisor.runsc import RunscSettings

_LEVELS = {"ordinary": None, "gVisor": IsolationLevel.HARDENED}
_COMMANDS = {
    "a command (`echo`)": ["/bin/echo", "hi"],
    "100 × fork and exec (`sh`)": [
        "/bin/sh",
        "-c",
        "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; echo hi",
    ],
    "1,000 small files written and removed": [
        *("/bin/sh", "-c"),
        "mkdir d; i=0; while [ $i -lt 1000 ]; do echo x > d/$i; i=$((i+1)); done; rm -r d; echo hi",
    ],
    "arithmetic (`awk`, 2 million rounds)": ["awk", 'BEGIN { while (i < 2000000) i++; print "hi" }'],
}
_ROUNDS_OF_LONG_ONES = 5


async def run(machine: Machine, argv: list[str]) -> None:
    _, stdout, stderr = await machine.run(ProcessSpec(new_process_id(), argv, cwd="/workspace"), 300)
    if stdout.data != b"hi\n":
        raise RuntimeError(f"the command said something else: {stdout.data!r} {stderr.data!r}")


async def measure(rounds: int, home: Path) -> None:
    wanted = RunscSettings(os.environ.get("PADDOCK_RUNSC", ""), os.environ.get("PADDOCK_RUNSC_PLATFORM", ""))
    provider = LocalProvider(home / "local", runsc=wanted)
    await provider.start()
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    memory: dict[str, int] = {}
    try:
        for _ in track(range(rounds), "starts", console=progress, transient=True):
            for name, level in _LEVELS.items():
                box = _spec(level)
                began = time.perf_counter()
                await provider.create(box)
                await run(await provider.attach(box.sandbox_id), _COMMANDS["a command (`echo`)"])
                taken["create, to the first output", name].append(time.perf_counter() - began)
                began = time.perf_counter()
                await provider.delete(box.sandbox_id)
                taken["delete", name].append(time.perf_counter() - began)
        boxes = {name: _spec(level) for name, level in _LEVELS.items()}
        for name, box in boxes.items():
            await provider.create(box)
            memory[name] = (await (await provider.attach(box.sandbox_id)).stats()).memory_used
        report = await provider.isolation(boxes["gVisor"].sandbox_id)
        for what, argv in _COMMANDS.items():
            count = rounds if argv[0] == "/bin/echo" else min(rounds, _ROUNDS_OF_LONG_ONES)
            for _ in track(range(count), what, console=progress, transient=True):
                for name, box in boxes.items():
                    inside = await provider.attach(box.sandbox_id)
                    began = time.perf_counter()
                    await run(inside, argv)
                    taken[what, name].append(time.perf_counter() - began)
    finally:
        for found in await provider.list():
            await provider.delete(found.sandbox_id)
        await provider.close()
    rows = []
    for what in dict.fromkeys(what for what, _ in taken):
        ours, theirs = taken[what, "ordinary"], taken[what, "gVisor"]
        medians = median(ours), median(theirs)
        row = [milliseconds(medians[0]), milliseconds(p99(ours)), milliseconds(medians[1]), milliseconds(p99(theirs))]
        rows.append([what, *row, times(medians[1] / medians[0])])
    title = f"A kernel of its own ({report.layers[-1].detail}), {rounds} rounds"
    idle = ", ".join(f"{name} {used / 1e6:.1f} MB" for name, used in memory.items())
    note = f"Memory of an idle sandbox, as its control group counts it, with its page cache: {idle}."
    table(title, ["", "ordinary p50 ms", "p99", "gVisor p50 ms", "p99", "times"], rows, note)


def _spec(level: IsolationLevel | None) -> SandboxSpec:
    return SandboxSpec(new_sandbox_id("bench"), new_sandbox_key(), "bench", "bench", "host", isolation=level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        print(f"## gVisor\n\n{machine()}.")
        try:
            asyncio.run(measure(options.rounds, Path(folder)))
        except errors.ProviderRefused as refusal:
            raise SystemExit(refusal.message) from None


if __name__ == "__main__":
    main()
