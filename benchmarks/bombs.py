"""What a sandbox that takes all it can get does to its neighbours and to the host.

Calm and each bomb in turn: some sandboxes go wild, twenty others run a small command each again and again through the
HTTP API, and the host forks. As root and, started by root, once more as an ordinary user.

    python -m benchmarks.bombs [--only shell,fork] [--bombers 3] [--neighbours 20]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bomb_set import BOMBS, SECONDS, Bomb
from benchmarks.local_server import ECHO, LocalServer, Template, local_server
from benchmarks.tables import machine, median, milliseconds, p99, progress, table
from benchmarks.wire import Wire, request

_CALM_S = 2.5
_PAUSE_S = 0.25
"""Between two commands of one neighbour."""
_HOST_PAUSE_S = 0.02
_FIRST_S = 1.0
"""Time in which a bomb is detected and limited."""
_GIVE_UP_S = 90.0
_ORDINARY_USER = 65_534
_SYSTEM_PYTHON = "/usr/bin/python3"
_HOST_CLOCK = f"""
import os, sys, time
while True:
    started = time.time()
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/true", ["true"])
    os.waitpid(pid, 0)
    print(started, time.time() - started, flush=True)
    time.sleep({_HOST_PAUSE_S})
"""


@dataclass(slots=True)
class Felt:
    """Commands in the neighbours and on the host: start times relative to the bomb's start, and durations in
    seconds."""

    neighbours: list[tuple[float, float]] = field(default_factory=list)
    host: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: Felt) -> None:
        self.neighbours += other.neighbours
        self.host += other.host


class Scene:
    """A server with its neighbours, and a process of the host that forks."""

    def __init__(self, server: LocalServer, wires: Sequence[Wire], neighbours: Sequence[str], command: str) -> None:
        self._server = server
        self._command = command
        self._neighbours = list(zip(wires, neighbours, strict=True))

    async def phase(self, seconds: float) -> Felt:
        """The durations of the commands that start within these seconds; waits until all have ended."""
        clock = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", _HOST_CLOCK, stdout=asyncio.subprocess.PIPE
        )
        began = time.time()
        try:
            loops = [self._loop(number, began, seconds) for number in range(len(self._neighbours))]
            async with asyncio.timeout(seconds + _GIVE_UP_S):
                times = await asyncio.gather(*loops)
        finally:
            clock.terminate()
            lines = (await clock.communicate())[0].split(b"\n")
        words = [line.split() for line in lines if b" " in line]
        host = [(float(started) - began, float(taken)) for started, taken in words]
        return Felt([one for each in times for one in each], host)

    async def _loop(self, number: int, began: float, seconds: float) -> list[tuple[float, float]]:
        wire, sandbox_id = self._neighbours[number]
        times: list[tuple[float, float]] = []
        await asyncio.sleep(_PAUSE_S * number / len(self._neighbours))
        while (at := time.time() - began) < seconds:
            taken = await self._server.hello(wire, sandbox_id, self._command)
            times.append((at, taken))
            await asyncio.sleep(max(0.0, _PAUSE_S - taken))
        return times


async def _bombed(server: LocalServer, wire: Wire, scene: Scene, bomb: Bomb, bombers: int) -> Felt:
    boxes = [await server.create(wire) for _ in range(bombers)]
    try:
        for box in boxes:
            body = {"sandbox_id": box, "command": bomb.command, "background": True, "hard_timeout": SECONDS + 2}
            await wire.ask(request("POST", "/sandboxes/run-command", server.key, body))
        return await scene.phase(SECONDS - 1)
    finally:
        await server.delete(wire, boxes)


async def measure(home: Path, bombs: Sequence[Bomb], bombers: int, neighbours: int, command: str) -> None:
    calm = Felt()
    felt: dict[str, Felt] = {}
    async with local_server(home / "bombs", Template()) as server:
        wires = await server.wires(neighbours + 1)
        boxes = [await server.create(wires[-1]) for _ in range(neighbours)]
        scene = Scene(server, wires[:-1], boxes, command)
        await scene.phase(1)
        for bomb in bombs:
            progress.print(f"{bomb.name} …")
            calm.add(await scene.phase(_CALM_S))
            felt[bomb.name] = await _bombed(server, wires[-1], scene, bomb, bombers)
        calm.add(await scene.phase(_CALM_S))
        await server.delete(wires[-1], boxes)
    rows = [_row("**calm**, all phases together", calm, calm)]
    rows += [_row(f"{bomb.name}: {bomb.what}", felt[bomb.name], calm) for bomb in bombs]
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    columns = ["p50 ms", "p99 ms", "p99 ×", "later ×"]
    head = ["", *(f"neighbours {one}" for one in columns), *(f"host {one}" for one in columns), "worst ms"]
    note = (
        f"{bombers} sandboxes let it off at once beside {neighbours} neighbours, each with `{command}` every "
        f"{_PAUSE_S:g} s; the host forks and runs /bin/true every {_HOST_PAUSE_S:g} s. × is p99 against calm, "
        f"later without the first {_FIRST_S:g} s. {machine()}."
    )
    table(f"Neighbours and host under bombs, Paddock run by {who}", head, rows, note)


def _row(name: str, felt: Felt, calm: Felt) -> list[str]:
    cells = [name]
    for now, then in ((felt.neighbours, calm.neighbours), (felt.host, calm.host)):
        base = p99([taken for _, taken in then])
        whole = [taken for _, taken in now]
        later = [taken for at, taken in now if at > _FIRST_S] or whole
        cells += [milliseconds(median(whole)), milliseconds(p99(whole)), f"{p99(whole) / base:.1f}"]
        cells.append(f"{p99(later) / base:.1f}")
    return [*cells, milliseconds(max(taken for _, taken in (*felt.neighbours, *felt.host)))]


def _again_as_ordinary_user(words: Sequence[str]) -> int:
    user = ["setpriv", f"--reuid={_ORDINARY_USER}", f"--regid={_ORDINARY_USER}", "--clear-groups"]
    python = next((path for path in (sys.executable, _SYSTEM_PYTHON) if _usable(user, path)), None)
    if python is None:
        progress.print(f"Not run as an ordinary user: {sys.executable} is out of its reach, and so is another one.")
        return 1
    with tempfile.TemporaryDirectory(prefix="paddock-bombs-") as home:
        os.chown(home, _ORDINARY_USER, _ORDINARY_USER)
        environment = {**os.environ, "HOME": home, "TMPDIR": home, "PYTHONPATH": _modules()}
        return subprocess.run(
            [*user, python, "-m", "benchmarks.bombs", *words], env=environment, check=False
        ).returncode


def _usable(user: Sequence[str], python: str) -> bool:
    """Checked by a process of this user: the path may be readable for root only."""
    words = [*user, "env", f"PYTHONPATH={_modules()}", python, "-c", "import paddock, pydantic_core"]
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _modules() -> str:
    return os.pathsep.join(
        path for path in sys.path if path.endswith("site-packages") or not path.startswith(sys.base_prefix)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of bombs, separated by commas")
    parser.add_argument("--bombers", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--command", default=ECHO, help="what the neighbours run; it must print hi")
    parser.add_argument("--as", dest="who", choices=("both", "root", "user"), default="both")
    given = parser.parse_args()
    known = {bomb.name: bomb for bomb in BOMBS}
    if unknown := set(given.only.split(",") if given.only else ()) - known.keys():
        parser.error(f"no such bomb: {', '.join(sorted(unknown))}. There are: {', '.join(known)}")
    chosen = [known[name] for name in (given.only.split(",") if given.only else known)]
    if os.geteuid() != 0 or given.who != "user":
        with tempfile.TemporaryDirectory(prefix="paddock-bombs-") as home:
            asyncio.run(measure(Path(home), chosen, given.bombers, given.neighbours, given.command))
    if os.geteuid() == 0 and given.who != "root":
        return _again_as_ordinary_user([*sys.argv[1:], "--as=both"])  # must come last, because it gives up root
    return 0


if __name__ == "__main__":
    sys.exit(main())
