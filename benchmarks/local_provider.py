"""What the local provider costs, beside Docker and beside a bare fork+exec, in one run.

Candidates take turns, a few times in a row each round, so that noise of the machine meets all alike: read the ratios,
not the milliseconds. Paddock is a whole server (`paddock up`, SQLite on disk, keys checked) asked over HTTP by a
minimal client on kept-alive connections; Docker is its own command line, with an image of the same root file system.

    python -m benchmarks.local_provider [--rounds 100] [--only start command …] [--docker HOST] [--template DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import uvloop

from benchmarks import provider_alone, standing, starts, transfer
from benchmarks.engine import Engine, NoEngine, engine
from benchmarks.local_server import Template
from benchmarks.roots import find_template
from benchmarks.tables import machine

PARTS = ("start", "command", "memory", "many", "pause", "leaks", "files")
_WITH_DOCKER = {"start", "command"}


async def measure(options: argparse.Namespace) -> None:
    # Delete sandboxes and stop the engine first, because both outlive this program.
    here = asyncio.current_task()
    assert here is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, here.cancel)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-", dir=options.home)))
        template = find_template(options.template, base)
        print(f"## The local provider\n\n{machine()}.")
        print(f"\nTemplate: {template.folder.name if template.folder else 'the host itself'}.", end=" ")
        docker = None
        if _WITH_DOCKER & set(options.only):
            docker = _docker(stack, options, base, template)
        print(flush=True)
        for part in options.only:
            await _run(part, options, base, template, docker)
        print(f"\nAt the end: {machine()}.")


async def _run(part: str, options: argparse.Namespace, base: Path, template: Template, docker: Engine | None) -> None:
    match part:
        case "start":
            await starts.starts(base, template, docker, options.rounds)
        case "command":
            await starts.commands(base, template, docker, options.rounds)
        case "memory":
            await standing.memory(base, template)
        case "many":
            await standing.many(base, template, options.alive)
        case "pause":
            await provider_alone.pauses(base, template, 2 * options.rounds)
        case "leaks":
            await provider_alone.leaks(base, template, options.cycles)
        case "files":
            await transfer.files(base, template, options.megabytes)


def _docker(stack: ExitStack, options: argparse.Namespace, base: Path, template: Template) -> Engine | None:
    try:
        found = stack.enter_context(engine(options.docker, base, template.folder))
    except NoEngine as missing:
        print(f"No comparison with Docker: {missing}.", end=" ")
        return None
    print(f"Docker {found.version}, with an image of the same.", end=" ")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the parts that take turns")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts only")
    parser.add_argument(
        "--docker", metavar="HOST", help="an engine, unix:///…; default DOCKER_HOST, else one is started"
    )
    parser.add_argument("--template", type=Path, metavar="DIRECTORY", help="the root file system of both")
    parser.add_argument(
        "--home", type=Path, metavar="DIRECTORY", help="where state is kept; default: the temporary one"
    )
    parser.add_argument("--alive", type=int, default=500, help="sandboxes of the part 'many'")
    parser.add_argument("--cycles", type=int, default=1000, help="of the part 'leaks'")
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the file of the part 'files'")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
