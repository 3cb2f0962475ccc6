"""The local provider without a server: pause and resume, and what a thousand deleted sandboxes leave behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.progress import track

from benchmarks.local_server import Template, clear
from benchmarks.tables import median, milliseconds, p99, progress, table
from paddock.ids import new_process_id, new_sandbox_id, new_sandbox_key
from paddock.machine.base import Machine, ProcessSpec
from paddock.providers.base import SandboxSpec
from paddock.providers.local import LocalProvider
from paddock.providers.local.host import group_name

_SLEEPERS = 100
_WARM_UP = 20
_SETTLE_SECONDS = 20.0
_SLABS = ("net_namespace", "pid_namespace", "user_namespace", "mnt_cache")
_SLAB_NOISE = 100
"""Objects per kind that the kernel caches but counts as in use."""


async def pauses(home: Path, template: Template, rounds: int) -> None:
    """Freeze and thaw one sandbox with many processes in it."""
    taken: dict[str, list[float]] = {"pause": [], "resume": [], "resume, to the output of a command": []}
    async with _provider(home / "pauses", template) as provider:
        box = _spec(template)
        await provider.create(box)
        machine = await provider.attach(box.sandbox_id)
        sleepers = f"for i in $(seq {_SLEEPERS}); do sleep 100000 & done; echo ready; wait"
        process = ProcessSpec(new_process_id(), ["/bin/bash", "-c", sleepers])
        await machine.spawn(process)
        async for _ in machine.follow(process.process_id):
            break
        for _ in track(range(rounds), "pauses", console=progress, transient=True):
            began = time.perf_counter()
            await provider.pause(box.sandbox_id)
            paused = time.perf_counter()
            await provider.resume(box.sandbox_id)
            resumed = time.perf_counter()
            await _echo(await provider.attach(box.sandbox_id))
            taken["pause"].append(paused - began)
            taken["resume"].append(resumed - paused)
            taken["resume, to the output of a command"].append(time.perf_counter() - paused)
        await provider.delete(box.sandbox_id)
    rows = [[name, milliseconds(median(values)), milliseconds(p99(values))] for name, values in taken.items()]
    title = f"Pause and resume at the provider, {_SLEEPERS + 1} processes, {rounds} rounds"
    table(title, ["", "p50 ms", "p99 ms"], rows)


async def leaks(home: Path, template: Template, cycles: int) -> None:
    """Create and delete many sandboxes one after another; a higher count afterwards is a leak."""
    async with _provider(home / "leaks", template) as provider:
        root = home / "leaks" / "local"
        for number in range(_WARM_UP):
            await _cycle(provider, template, number)
        before = _counts(root)
        began = time.perf_counter()
        for number in track(range(cycles), "create and delete", console=progress, transient=True):
            await _cycle(provider, template, number)
        took = time.perf_counter() - began
        after = await _settled(root, before)
    rows = [[name, f"{before[name]:,}", f"{after[name]:,}", f"{after[name] - before[name]:+,}"] for name in before]
    note = (
        f"{cycles / took:.0f} cycles/s; every one runs a command, every tenth comes from the pool, every tenth is "
        "paused and resumed, and every tenth is deleted while paused. The counts of namespaces are of the whole "
        "machine; the kernel's own counts are rounded up to what it keeps in hand."
    )
    table(f"Left behind by {cycles:,} create and delete cycles", ["", "before", "after", "more"], rows, note)


async def _cycle(provider: LocalProvider, template: Template, number: int) -> None:
    box = _spec(template)
    if number % 10 == 0 and (shape := provider.shape_of(box)) is not None:
        await provider.warm(shape)
    await provider.create(box)
    await _echo(await provider.attach(box.sandbox_id))
    if number % 10 in (3, 6):
        await provider.pause(box.sandbox_id)
    if number % 10 == 3:
        await provider.resume(box.sandbox_id)
    await provider.delete(box.sandbox_id)


async def _echo(machine: Machine) -> None:
    process = ProcessSpec(new_process_id(), ["/bin/echo", "hi"])
    _, stdout, _ = await machine.run(process, 30)
    if stdout.data != b"hi\n":
        raise RuntimeError(f"the command said something else: {stdout.data!r}")


def _spec(template: Template) -> SandboxSpec:
    return SandboxSpec(new_sandbox_id("bench"), new_sandbox_key(), "bench", "bench", template.name)


@asynccontextmanager
async def _provider(home: Path, template: Template) -> AsyncIterator[LocalProvider]:
    home.mkdir(mode=0o700)
    provider = LocalProvider(home / "local", templates=template.folder.parent if template.folder else None)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.close()
        await clear(home / "local")


def _counts(root: Path) -> dict[str, int]:
    """All kernel objects that a sandbox consists of."""
    status = Path("/proc/self/status").read_text()
    counts = {
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "loop devices in use": sum((path / "loop").is_dir() for path in Path("/sys/block").glob("loop*")),
        "control groups": _groups(group_name(root)),
        "network namespaces with processes": _namespaces("net"),
        "mount namespaces with processes": _namespaces("mnt"),
        "files in its folder": sum(len(folders) + len(files) for _, folders, files in os.walk(root)),
        "files in /run/paddock": sum(len(files) for _, _, files in os.walk("/run/paddock")),
        "descriptors of the process": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads of the process": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "children of the process": _children(),
        "memory of the process, kB": int(status.partition("VmRSS:")[2].split()[0]),
    }
    return counts | {f"`{name}` objects in the kernel": count for name, count in _slabs().items()}


async def _settled(root: Path, before: dict[str, int]) -> dict[str, int]:
    """The kernel frees namespaces and control groups in the background: wait until the counts are no higher than
    before."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        after = _counts(root)
        more = [name for name in before if after[name] > before[name] and not name.startswith(("memory", "`"))]
        slabs = [name for name in before if name.startswith("`") and after[name] > before[name] + _SLAB_NOISE]
        if not (more or slabs) or time.monotonic() > deadline:
            return after
        await asyncio.sleep(0.5)


def _groups(name: str) -> int:
    top = Path("/sys/fs/cgroup")
    return sum(f"/{name}" in folder for folder, _, _ in os.walk(top))


def _namespaces(kind: str) -> int:
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                found.add((path / "ns" / kind).readlink())
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has just ended, or belongs to another user
    return len(found)


def _children() -> int:
    return sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children"))


def _slabs() -> dict[str, int]:
    try:
        lines = Path("/proc/slabinfo").read_text().splitlines()
    except PermissionError:
        return {}
    words = [line.split() for line in lines]
    return {name: int(count) for name, count, *_ in words if name in _SLABS}
