"""Bombs: one sandbox takes all it can get, while the host and another sandbox must stay responsive.

Afterwards the sandbox itself must be usable again.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from paddock import errors
from paddock.doctor.attempts import Outcome, Verdict
from paddock.doctor.canaries import unharmed
from paddock.doctor.suite import PROBE, RESOURCES, Box, Suite, probe_program

SECONDS = 2
RESPONSIVE = 2.0
"""Seconds that half of all small commands may take at most, on the host and elsewhere, while the bomb goes off."""
_MANY = 1_000_000
_RECOVERY = 30.0
_TRUE = "/bin/true"


@dataclass(frozen=True, slots=True)
class Bomb:
    name: str
    danger: str
    words: tuple[int | str, ...]
    layer: str | None = None
    """The layer of isolation that this rests on; where it is missing the report says so, and it is not tried."""
    counts: bool = True
    """Whether the probe itself can tell that there was no limit; else only what others feel counts."""


BOMBS: tuple[Bomb, ...] = (
    Bomb("bomb-fork", "processes until the host has no more", (SECONDS, RESOURCES.pids * 8)),
    Bomb("bomb-zombies", "dead processes until the host has no more", (SECONDS, RESOURCES.pids * 8)),
    Bomb("bomb-memory", "memory until the host kills others", (SECONDS, RESOURCES.memory_mb * 4)),
    Bomb("bomb-memory-file", "memory that belongs to no process", (SECONDS, RESOURCES.memory_mb * 4), "memory limit"),
    Bomb("bomb-shared-memory", "memory in /dev/shm", (SECONDS, RESOURCES.memory_mb * 4)),
    Bomb("bomb-socket-buffers", "memory of the kernel itself", (SECONDS, RESOURCES.memory_mb * 20), "memory limit"),
    Bomb("bomb-disk", "the host's disk is filled", (RESOURCES.disk_mb * 2, "/workspace"), "disk limit"),
    Bomb("bomb-inodes", "the host's disk has no room for names", (_MANY, "/workspace"), "disk limit"),
    Bomb("bomb-descriptors", "open files until the host has no more", (SECONDS, 8, _MANY)),
    Bomb("bomb-output", "output until the host's disk is full", (SECONDS,), counts=False),
    Bomb("bomb-cpu", "calculation on every processor", (SECONDS,), counts=False),
    Bomb("kill-everyone", "every process that a signal reaches is killed", ()),
)

_OWN_IDS = "own uid range"

ALLOWANCES: tuple[Bomb, ...] = (
    Bomb("inotify", "nobody else can watch files", (100_000,), _OWN_IDS),
    Bomb("terminals", "nobody else gets a terminal", (100_000,)),
    Bomb("signals", "nobody else can queue signals or make timers", (1_000_000,), _OWN_IDS),
    Bomb("queues", "nobody else gets a message queue", (100_000,), _OWN_IDS),
    Bomb("locked-memory", "nobody else can lock memory", (100_000,)),
    Bomb("pipes", "others' pipes are made tiny", (2_000,), _OWN_IDS),
    Bomb("watches", "nobody else can wait for events", (200_000,), _OWN_IDS),
    Bomb("in-flight", "nobody else can hand over descriptors", (200_000,), _OWN_IDS),
)
"""What the kernel counts by user or for everybody, and how many of them one sandbox asks for."""


async def explode(suite: Suite, box: Box, bomb: Bomb) -> Outcome:
    """Let one off in ``box``. What it does to the host, to the neighbour and to itself afterwards decides."""
    if (missing := await _missing(suite, bomb)) is not None:
        return _outcome(bomb.name, Verdict.NOT_TRIED, missing)
    words = [str(word) for word in bomb.words]
    attack = asyncio.create_task(box.run(PROBE, "run", bomb.name, *words, user="root"))
    pulse = await _pulse(suite, attack)
    info, output = await attack
    lines = output.splitlines()
    detail = f"{lines[-1][:100] if lines and bomb.counts else bomb.danger}; {pulse}"
    if bomb.counts and info.exit_code in (1, 2):
        return _outcome(bomb.name, Verdict.NOT_REFUSED if info.exit_code == 1 else Verdict.NOT_TRIED, detail)
    trouble = pulse.trouble() or unharmed(suite.canaries) or await _recovered(box)
    if trouble is not None:
        return _outcome(bomb.name, Verdict.NOT_REFUSED, f"{trouble}; {detail}")
    return _outcome(bomb.name, Verdict.REFUSED, detail)


async def exhaust(suite: Suite, box: Box, bomb: Bomb) -> Outcome:
    """Take all of one allowance in ``box``; the neighbour and the host must still get some."""
    kind, name = bomb.name, f"allowance-{bomb.name}"
    if (missing := await _missing(suite, bomb)) is not None:
        return _outcome(name, Verdict.NOT_TRIED, missing)
    for who, works in _everybody(suite, kind):
        if not await works():
            return _outcome(name, Verdict.NOT_TRIED, f"there is none for {who} before it begins")
    holder = await box.start(PROBE, "run", "allowance-hold", kind, str(bomb.words[0]), "60", user="root", seconds=70)
    try:
        for who, works in _everybody(suite, kind):
            if not await works():
                return _outcome(name, Verdict.NOT_REFUSED, f"there is none left for {who}")
    finally:
        await (await box.machine()).signal(holder, 9)
        await (await box.machine()).wait(holder, timeout=_RECOVERY)
    return _outcome(name, Verdict.REFUSED, "the host and another sandbox still get theirs")


async def _missing(suite: Suite, bomb: Bomb) -> str | None:
    """Why this machine cannot hold against it; the isolation report says the same."""
    report = await suite.isolation()
    if bomb.layer is None or any(layer.active for layer in report.layers if layer.name == bomb.layer):
        return None
    return f"it takes the layer {bomb.layer!r}, which is missing on this machine"


def _everybody(suite: Suite, kind: str) -> list[tuple[str, Callable[[], Awaitable[bool]]]]:
    async def by(user: str) -> bool:
        info, _ = await suite.neighbour.run(PROBE, "run", "allowance-use", kind, user=user)
        return info.exit_code == 1

    async def on_host() -> bool:
        process = await asyncio.create_subprocess_exec(
            probe_program(), "run", "allowance-use", kind, stdout=asyncio.subprocess.DEVNULL
        )
        return await process.wait() == 1

    return [
        ("the host", on_host),
        ("another sandbox", lambda: by("user")),
        ("the root of another sandbox", lambda: by("root")),
    ]


@dataclass(frozen=True, slots=True)
class Pulse:
    host: float
    neighbour: float

    def trouble(self) -> str | None:
        if self.host > RESPONSIVE:
            return "the host did not stay responsive"
        return "another sandbox did not stay responsive" if self.neighbour > RESPONSIVE else None

    def __str__(self) -> str:
        return (
            f"a command took {self.host * 1000:.0f} ms on the host, {self.neighbour * 1000:.0f} ms in another sandbox"
        )


async def _pulse(suite: Suite, attack: asyncio.Task[object]) -> Pulse:
    """Small commands, one after the other, for as long as the attack lasts; the medians of what they took."""
    host: list[float] = []
    neighbour: list[float] = []
    while not host or not attack.done():
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(_TRUE)
        await process.wait()
        between = time.monotonic()
        info, _ = await suite.neighbour.run(_TRUE)
        if info.exit_code != 0:
            raise errors.PaddockError(f"A command in another sandbox failed meanwhile ({info.exit_code}).")
        host.append(between - started)
        neighbour.append(time.monotonic() - between)
        await asyncio.wait([attack], timeout=0.05)
    return Pulse(statistics.median(host), statistics.median(neighbour))


async def _recovered(box: Box) -> str | None:
    """None when it can be used again; its machine may have been started anew."""
    deadline = time.monotonic() + _RECOVERY
    problem = ""
    while time.monotonic() < deadline:
        try:
            info, output = await box.run(PROBE, "run", "filter-active", seconds=10)
            if info.exit_code == 0:
                return None
            problem = output
        except errors.PaddockError as error:
            problem = error.message
        await asyncio.sleep(0.2)
    return f"the sandbox could not be used afterwards: {problem}"


def _outcome(name: str, verdict: Verdict, detail: str) -> Outcome:
    return Outcome(name, "root", verdict, detail)
