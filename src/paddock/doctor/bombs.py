"""Resource exhaustion: one sandbox takes all it can get, while the host and another sandbox must stay responsive.

Afterwards the sandbox itself must be usable again.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from paddock import errors
from paddock.doctor.attempts import AttemptOutcome, Verdict
from paddock.doctor.canaries import harm_to_host
from paddock.doctor.suite import PROBE, RESOURCES, Suite, TestSandbox, probe_program

SECONDS = "SECONDS"
"""Placeholder in a bomb's arguments for its duration."""
_SECONDS = 2
RESPONSIVE_S = 0.5
SLOWDOWN = 3
"""During a bomb, the median time of small commands on the host and in other sandboxes must be at most this multiple of
the time without load, or at most the limit below, which is not noticeable."""
STALL_S = 5.0
"""Maximum time of any single command."""
_CALM_COMMANDS = 10
_MANY = 1_000_000
_RECOVERY = 30.0
_TRUE = "/bin/true"
_SAY_VERSION = "--version"
_FILTER_STANDS = (0, 2)
"""Exit codes of the probe if the seccomp filter is active, or the kernel does not report it."""
_SANDBOX_ENDED = -1


@dataclass(frozen=True, slots=True)
class Bomb:
    name: str
    danger: str
    words: tuple[int | str, ...]
    layer: str | None = None
    """The isolation layer that defends against it; if that is missing, it is reported and the bomb is not tried."""
    script: str | None = None
    """Shell script for the template's shell, if the bomb uses its programs and libraries; otherwise the probe
    implements it. ``$1``: duration in seconds; ``$2``: the program to start."""
    counts: bool = True
    """Whether the probe can tell that there was no limit; otherwise only the effect on others counts."""
    programs: tuple[str, ...] = ()
    """The script starts the first of these that the template has, and the other sandboxes start it during the attack;
    if it has none, the bomb is not tried."""


_UNTIL = 'end=$(($(date +%s) + $1)); go() { [ "$(date +%s)" -lt "$end" ]; }; '
_SHELL = _UNTIL + 'bomb() { go || return; bomb | bomb & bomb | bomb & }; bomb; sleep "$(($1 + 1))"'
_PYTHON = """exec "$2" -c '
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
os._exit(0)
' "$1\""""
_SHARED_PROGRAMS = ("git", "node", "openssl", "gcc")
"""Programs that sandboxes have no private copies of: all sandboxes and the host map the same file."""
_SHARED = (
    _UNTIL
    + 'program=$2; bomb() { go || return; "$program" --version >/dev/null 2>&1 & bomb | bomb & bomb | bomb & }; '
    + 'bomb; sleep "$(($1 + 1))"'
)
_EXEC = _UNTIL + "for i in 1 2 3 4 5 6 7 8; do (while go; do /bin/true; /bin/true; /bin/true; done) & done; wait"
_PAGE_CACHE = (
    _UNTIL
    + f"dd if=/dev/zero of=/tmp/cache bs=1M count={RESOURCES.disk_mb * 3 // 4} 2>/dev/null; "
    + "for i in 1 2 3 4; do (while go; do cat /tmp/cache >/dev/null; done) & done; wait; rm -f /tmp/cache"
)

BOMBS: tuple[Bomb, ...] = (
    Bomb("bomb-fork", "processes until the host has no more", (SECONDS, RESOURCES.pids * 8)),
    Bomb("bomb-zombies", "dead processes until the host has no more", (SECONDS, RESOURCES.pids * 8)),
    Bomb("bomb-memory", "memory until the host kills others", (SECONDS, RESOURCES.memory_mb * 4)),
    Bomb("bomb-memory-file", "memory that belongs to no process", (SECONDS, RESOURCES.memory_mb * 4), "memory limit"),
    Bomb("bomb-shared-memory", "memory in /dev/shm", (SECONDS, RESOURCES.memory_mb * 4)),
    Bomb("bomb-socket-buffers", "memory of the kernel itself", (SECONDS, RESOURCES.memory_mb * 20), "memory limit"),
    Bomb("bomb-disk", "the host's disk is filled", (RESOURCES.disk_mb * 2, "/workspace"), "disk limit"),
    Bomb("bomb-inodes", "the host's disk has no free inodes", (_MANY, "/workspace"), "disk limit"),
    Bomb("bomb-descriptors", "open files until the host has no more", (SECONDS, 8, _MANY)),
    Bomb("bomb-output", "output until the host's disk is full", (SECONDS,), counts=False),
    Bomb("bomb-cpu", "computation on every processor", (SECONDS,), counts=False),
    Bomb("bomb-shell", "forks of a shell block all processes that map its libraries", (), script=_SHELL, counts=False),
    Bomb(
        "bomb-python",
        "forks of Python block all processes that map its libraries",
        (),
        script=_PYTHON,
        counts=False,
        programs=("python3",),
    ),
    Bomb(
        "bomb-shared-program",
        "starts of a program whose file is shared by all sandboxes block others",
        (),
        script=_SHARED,
        counts=False,
        programs=_SHARED_PROGRAMS,
    ),
    Bomb("bomb-exec", "starts of programs block others that start them", (), script=_EXEC, counts=False),
    Bomb("bomb-page-cache", "cached files of others are evicted", (), script=_PAGE_CACHE, counts=False),
    Bomb("bomb-threads", "short-lived threads keep the scheduler busy", (SECONDS,), counts=False),
    Bomb("bomb-inotify-events", "events of watched files keep the kernel busy", (SECONDS, "/tmp"), counts=False),  # noqa: S108
    Bomb("bomb-loopback", "packets on its loopback keep the kernel busy", (SECONDS,), counts=False),
    Bomb("kill-everyone", "every process that a signal reaches is killed", ()),
)

_OWN_IDS = "own uid range"
_THE_HOST = "the host"

ALLOWANCES: tuple[Bomb, ...] = (
    Bomb("inotify", "others cannot watch files", (100_000,), _OWN_IDS),
    Bomb("terminals", "others get no terminal", (100_000,)),
    Bomb("signals", "others cannot queue signals or create timers", (1_000_000,), _OWN_IDS),
    Bomb("queues", "others get no message queue", (100_000,), _OWN_IDS),
    Bomb("locked-memory", "others cannot lock memory", (100_000,)),
    Bomb("pipes", "others' pipes are made tiny", (2_000,), _OWN_IDS),
    Bomb("watches", "nobody else can wait for events", (200_000,), _OWN_IDS),
    Bomb("in-flight", "others cannot pass descriptors", (200_000,), _OWN_IDS),
)
"""Resources that the kernel limits per user or globally, and how many of them one sandbox requests."""


async def run_bomb(suite: Suite, box: TestSandbox, bomb: Bomb) -> AttemptOutcome:
    """Run a bomb in ``box``. The result depends on its effect on the host, the neighbour and, afterwards, itself."""
    if (missing := await _missing(suite, bomb)) is not None:
        return _outcome(bomb.name, Verdict.NOT_TRIED, missing)
    if (program := await _program(box, bomb)) is None:
        return _outcome(bomb.name, Verdict.NOT_TRIED, f"the template has no {' or '.join(bomb.programs)}")
    calm = await _pulse(suite, program, _CALM_COMMANDS)
    attack = asyncio.create_task(_run(box, _words(bomb, _SECONDS * suite.kind.slowness, program)))
    pulse = await _pulse(suite, program, 1, attack)
    code, said = await attack
    detail = f"{said if said and (bomb.counts or code == _SANDBOX_ENDED) else bomb.danger}; {pulse}"
    if bomb.counts and code in (1, 2):
        return _outcome(bomb.name, Verdict.NOT_REFUSED if code == 1 else Verdict.NOT_TRIED, detail)
    trouble = pulse.trouble(calm) or harm_to_host(suite.canaries) or await _recovered(box)
    if trouble is not None:
        return _outcome(bomb.name, Verdict.NOT_REFUSED, f"{trouble}; {detail}")
    if code == _SANDBOX_ENDED:
        return suite.judge(bomb.name, _outcome(bomb.name, Verdict.NOT_REFUSED, detail))
    return _outcome(bomb.name, Verdict.REFUSED, detail)


def _words(bomb: Bomb, seconds: int, program: str) -> list[str]:
    if bomb.script is not None:
        return ["/bin/sh", "-c", bomb.script, "sh", str(seconds), program]
    return [PROBE, "run", bomb.name, *(str(seconds if word == SECONDS else word) for word in bomb.words)]


async def _run(box: TestSandbox, words: list[str]) -> tuple[int | None, str]:
    """The exit code and last output line of the bomb."""
    try:
        info, output = await box.run(*words, user="root")
    except errors.ProviderUnavailable as gone:
        return _SANDBOX_ENDED, f"it ended its own sandbox: {gone.message}"
    return info.exit_code, (output.splitlines() or [""])[-1][:100]


async def exhaust(suite: Suite, box: TestSandbox, bomb: Bomb) -> AttemptOutcome:
    """Take all of one resource in ``box``; the neighbour and the host must still get some."""
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
                left = _outcome(name, Verdict.NOT_REFUSED, f"there is none left for {who}")
                return left if who == _THE_HOST else suite.judge(name, left)
    finally:
        await (await box.machine()).signal(holder, 9)
        await (await box.machine()).wait(holder, timeout=_RECOVERY)
    return _outcome(name, Verdict.REFUSED, "the host and another sandbox still get theirs")


async def _missing(suite: Suite, bomb: Bomb) -> str | None:
    """Why this machine has no defence against it, as in the isolation report."""
    report = await suite.isolation()
    if bomb.layer is None or any(layer.active for layer in report.layers if layer.name == bomb.layer):
        return None
    return f"it takes the layer {bomb.layer!r}, which is missing on this machine"


async def _program(box: TestSandbox, bomb: Bomb) -> str | None:
    """Path of the program that the bomb and the others start."""
    if not bomb.programs:
        return _TRUE
    info, output = await box.run("/bin/sh", "-c", " || ".join(f"command -v {one}" for one in bomb.programs))
    return output.splitlines()[0] if info.exit_code == 0 else None


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
        (_THE_HOST, on_host),
        ("another sandbox", lambda: by("user")),
        ("the root of another sandbox", lambda: by("root")),
    ]


@dataclass(frozen=True, slots=True)
class LatencyProbe:
    """Measures the duration of small commands."""

    host: Sequence[float]
    neighbour: Sequence[float]

    def trouble(self, calm: LatencyProbe) -> str | None:
        if _slower(self.host, calm.host):
            return f"the host did not stay responsive (calm: {calm})"
        if _slower(self.neighbour, calm.neighbour):
            return f"another sandbox did not stay responsive (calm: {calm})"
        return None

    def __str__(self) -> str:
        host, neighbour = (f"{statistics.median(times) * 1000:.0f} ms" for times in (self.host, self.neighbour))
        worst = max(*self.host, *self.neighbour)
        return f"a command took {host} on the host, {neighbour} in another sandbox, {worst * 1000:.0f} ms at worst"


def _slower(now: Sequence[float], calm: Sequence[float]) -> bool:
    bound = max(RESPONSIVE_S, SLOWDOWN * statistics.median(calm))
    return statistics.median(now) > bound or max(now) > max(STALL_S, SLOWDOWN * max(calm))


async def _pulse(suite: Suite, program: str, least: int, attack: asyncio.Task[object] | None = None) -> LatencyProbe:
    """Run small commands one after the other during the attack."""
    host: list[float] = []
    neighbour: list[float] = []
    words = (program,) if program == _TRUE else (program, _SAY_VERSION)
    on_host = words if os.access(program, os.X_OK) else (_TRUE,)
    while len(host) < least or not (attack is None or attack.done()):
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(*on_host, stdout=asyncio.subprocess.DEVNULL)
        await process.wait()
        between = time.monotonic()
        info, _ = await suite.neighbour.run(*words)
        if info.exit_code != 0:
            raise errors.PaddockError(f"A command in another sandbox failed meanwhile ({info.exit_code}).")
        host.append(between - started)
        neighbour.append(time.monotonic() - between)
        await asyncio.sleep(0.02)
    return LatencyProbe(host, neighbour)


async def _recovered(box: TestSandbox) -> str | None:
    """None if the sandbox is usable again; its machine may have been restarted."""
    deadline = time.monotonic() + _RECOVERY
    problem = ""
    while time.monotonic() < deadline:
        try:
            info, output = await box.run(PROBE, "run", "filter-active", seconds=10)
            if info.exit_code in _FILTER_STANDS:
                return None
            problem = output
        except errors.PaddockError as error:
            problem = error.message
        await asyncio.sleep(0.2)
    return f"the sandbox could not be used afterwards: {problem}"


def _outcome(name: str, verdict: Verdict, detail: str) -> AttemptOutcome:
    return AttemptOutcome(name, "root", verdict, detail)
