"""What the Docker provider costs beside Docker's own command line, on the same engine with the same image, in one run.

Candidates take turns, so that noise of the machine meets all alike: read the ratios, not the milliseconds. Paddock is a
whole server (`paddock up`, SQLite on disk, keys checked) asked over HTTP on a kept-alive connection.

    python -m benchmarks.docker_provider [--rounds 30] [--docker HOST] [--image NAME | --template DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from rich.progress import track

from benchmarks.engine import Engine, NoEngine, engine, find_client
from benchmarks.local_server import LocalServer, Template, _plain, _port
from benchmarks.roots import find_template
from benchmarks.spawned import spawn
from benchmarks.tables import machine, median, milliseconds, p99, progress, table, times
from benchmarks.wire import Wire, request
from paddock.providers.docker import DockerProvider
from paddock.providers.docker.address import Address

_POOL = 4
_WARM_UP = 1
_START_SECONDS = 120.0
_FILL_SECONDS = 120.0

Probe = Callable[[], Awaitable[float]]


async def measure(options: argparse.Namespace, docker: Engine, base: Path) -> None:
    print(f"## The Docker provider\n\n{machine()}. Docker {docker.version}, image {docker.image}.")
    async with _server(base / "cold", docker, pool=0) as cold, _server(base / "warm", docker, pool=_POOL) as warm:
        cold_wire, warm_wire = await Wire.open(cold.port), await Wire.open(warm.port)

        async def pooled() -> float:
            await _filled(warm_wire)
            return await _start(warm, warm_wire)

        starts: dict[str, Probe] = {
            "`docker run --network none`": _spawned(docker.run("--network", "none")),
            "Paddock, cold": lambda: _start(cold, cold_wire),
            "Paddock, from the pool": pooled,
        }
        _print("Start to first output of `/bin/echo hi`", await _rounds("starts", starts, options.rounds))
        box = await cold.create(cold_wire)
        with docker.containers(1) as names:
            commands: dict[str, Probe] = {
                "`docker exec`": _spawned(docker.exec(names[0])),
                "Paddock, run-command (by a shell)": lambda: cold.hello(cold_wire, box),
            }
            _print("One command, `/bin/echo hi`", await _rounds("commands", commands, 3 * options.rounds))
    print(f"\nAt the end: {machine()}.")


async def _start(server: LocalServer, wire: Wire) -> float:
    """The deletion follows and is not measured."""
    seconds, sandbox_id = await server.first_output(wire)
    await server.delete(wire, [sandbox_id])
    return seconds


def _spawned(argv: list[str]) -> Probe:
    async def probe() -> float:
        return (await asyncio.to_thread(spawn, argv))[0].end

    return probe


async def _rounds(name: str, probes: dict[str, Probe], rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {probe: [] for probe in probes}
    for step in track(range(rounds + _WARM_UP), name, console=progress, transient=True):
        for probe, run in probes.items():
            seconds = await run()
            if step >= _WARM_UP:
                taken[probe].append(seconds)
    return taken


def _print(title: str, taken: dict[str, list[float]]) -> None:
    rival = next(iter(taken))
    rows = [
        [name, milliseconds(median(values)), milliseconds(p99(values)), times(median(taken[rival]) / median(values))]
        for name, values in taken.items()
    ]
    table(title, ["", "p50 ms", "p99 ms", f"{rival} / it"], rows, f"n = {len(taken[rival])} of each, taking turns.")


async def _filled(wire: Wire) -> None:
    """Wait until the pool is full, so that refilling does not affect the next candidate."""
    deadline = time.monotonic() + _FILL_SECONDS
    while True:
        pool = json.loads(await wire.ask(request("GET", "/health")))["pool"]
        if pool["ready"] and pool["ready"] >= pool["wanted"]:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the pool was not filled: {pool}")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _server(home: Path, docker: Engine, *, pool: int) -> AsyncIterator[LocalServer]:
    home.mkdir(mode=0o700)
    settings = {
        "PADDOCK_HOME": str(home),
        "HOST": "127.0.0.1",
        "PORT": "0",
        "SANDBOX_PROVIDER": "docker",
        "DOCKER_HOST": docker.host,
        "PADDOCK_DOCKER_IMAGES": docker.image,
        "PADDOCK_LOG_LEVEL": "warning",
        "PADDOCK_POOL_SIZE": str(pool),
        "PADDOCK_POOL_MAX": str(pool),
    }
    program = Path(sys.executable).with_name("paddock")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--json", "up"], env={**_plain(), **settings}, cwd=home, stdout=subprocess.PIPE, stderr=log
        )
    try:
        port = await asyncio.wait_for(asyncio.to_thread(_port, process, home / "log"), _START_SECONDS)
        key = (home / "key").read_text().strip()
        yield LocalServer(home, Template(docker.image), port, process.pid, key)
    finally:
        process.terminate()
        process.wait(_START_SECONDS)
        await _clear(home / "docker", docker)


async def _clear(root: Path, docker: Engine) -> None:
    """Delete all sandboxes of a stopped server in this directory: they keep running by design."""
    provider = DockerProvider(root, address=Address.parse(docker.host), images=[docker.image])
    try:
        await provider.start()
        for found in await provider.list():
            await provider.delete(found.sandbox_id)
        for shape, count in dict(await provider.warmed()).items():
            await provider.cool(shape, count)
    finally:
        await provider.close()


@contextmanager
def _engine(options: argparse.Namespace, base: Path) -> Iterator[Engine]:
    if options.image is None:
        with engine(options.docker, base, find_template(options.template, base).folder) as found:
            yield found
    elif options.docker is None:
        raise NoEngine("an image is one of an engine: name that with --docker")
    else:
        yield Engine(find_client(), options.docker, "as named", options.image)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--docker", metavar="HOST", help="an engine, unix:///…; default DOCKER_HOST, else one is started"
    )
    parser.add_argument("--image", metavar="NAME", help="an image of that engine")
    parser.add_argument(
        "--template",
        type=Path,
        metavar="DIRECTORY",
        help="a root file system to make an image of; else a Debian is made",
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        try:
            found = stack.enter_context(_engine(options, base))
        except NoEngine as missing:
            raise SystemExit(f"Nothing to measure: {missing}.") from missing
        asyncio.run(measure(options, found, base))


if __name__ == "__main__":
    main()
