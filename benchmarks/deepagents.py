"""deepagents' operations on a sandbox: the backend's own ways beside the scripts of ``BaseSandbox``, in one run.

Both act on the same sandbox through the same client and take turns, so that noise of the machine meets both alike; read
the ratio, not the milliseconds. They run in deepagents' own environment, made as ``tests/deepagents`` makes it.

    python -m benchmarks.deepagents [--rounds 50] [--home DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.tables import machine, median, milliseconds, progress, table, times
from tests.deepagents.environments import NEWER, prepare
from tests.support.serving import serving

_WORK = """
import json, sys, time
from deepagents.backends.sandbox import BaseSandbox
from paddock.deepagents import PaddockSandbox
from paddock.session import SyncSandboxSession

NAMES = ("ls", "read", "write", "edit", "glob", "delete")
Stock = type("Stock", (PaddockSandbox,), {name: getattr(BaseSandbox, name) for name in NAMES})
TREE = "mkdir -p src/{a,b,c}/{d,e} && for i in $(seq 300); do echo text > src/a/d/$i.py; done"

def timed(act):
    started = time.perf_counter()
    result = act()
    taken = time.perf_counter() - started
    assert result.error is None, result
    return taken

with SyncSandboxSession.create() as session:
    session.run(f"bash -c {TREE!r}")
    ours, theirs = PaddockSandbox.of(session), Stock.of(session)
    ours.write("/workspace/read.py", "line of code\\n" * 500)
    acts = {
        "ls": lambda backend, turn: backend.ls("/workspace/src"),
        "read": lambda backend, turn: backend.read("/workspace/read.py"),
        "write": lambda backend, turn: backend.write(f"/workspace/{turn}.txt", "hello"),
        "edit": lambda backend, turn: backend.edit(f"/workspace/{turn}.txt", "hello", "goodbye"),
        "delete": lambda backend, turn: backend.delete(f"/workspace/{turn}.txt"),
        "glob": lambda backend, turn: backend.glob("**/*.py", "/workspace/src"),
    }
    taken = {name: {"ours": [], "theirs": []} for name in acts}
    for turn in range(int(sys.argv[1]) + 3):
        for whose, backend in (("ours", ours), ("theirs", theirs)):
            for name, act in acts.items():
                seconds = timed(lambda: act(backend, f"{whose}{turn}"))
                if turn >= 3:
                    taken[name][whose].append(seconds)
    print(json.dumps(taken))
"""


def measure(rounds: int, home: Path) -> dict[str, dict[str, list[float]]]:
    prepare(NEWER)
    with serving(home) as server:
        found = {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key, "PYTHONPATH": NEWER.path}
        done = subprocess.run(
            [NEWER.python, "-B", "-c", _WORK, str(rounds)],
            env={**os.environ, **found},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    taken: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--home", type=Path, help="where the server keeps its state; a temporary directory otherwise")
    given = parser.parse_args()
    progress.print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        taken = measure(given.rounds, given.home or Path(scratch) / "home")
    rows = [
        (
            f"`{name}`",
            milliseconds(median(both["ours"])),
            milliseconds(median(both["theirs"])),
            times(median(both["theirs"]) / median(both["ours"])),
        )
        for name, both in taken.items()
    ]
    table(
        "deepagents on a `local` sandbox",
        ("operation", "Paddock's backend, p50 ms", "`BaseSandbox`'s scripts, p50 ms", "×"),
        rows,
        machine(),
    )


if __name__ == "__main__":
    main()
