"""A command by the unmodified E2B SDK beside the same command by Paddock's own API, on one server, in one run.

Both take turns, one command at a time, over kept-alive connections, so that noise of the machine meets both alike; read
the ratio, not the milliseconds. The SDK runs in its own environment (made as ``tests/e2b`` makes it) and process, and
does its own work there: Connect's framing, JSON, decoding. "The same request without the SDK" is what it sends, sent by
a minimal client; what is left between that row and the SDK's is the SDK's own time. The SDK runs every command by a
login shell of bash, Paddock's API by a plain one, so there is a row for that, too.

    python -m benchmarks.e2b_sdk [--rounds 200] [--home DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.local_server import LocalServer, Template, local_server
from benchmarks.tables import machine, median, milliseconds, p99, progress, table, times
from benchmarks.wire import Wire
from tests.e2b.environments import PYTHON_NEWEST, prepare

_WARM_UP = 10
_COMMAND = "/bin/echo hi"
_FLOOR = "Paddock `run-command`"

_SDK = """
import sys, time
from e2b import Sandbox
sandbox = Sandbox.create(timeout=3600)
print(sandbox.sandbox_id, sandbox._envd_access_token, flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    result = sandbox.commands.run("/bin/echo hi")
    taken = time.perf_counter() - started
    assert result.stdout == "hi\\n", result
    print(taken, flush=True)
sandbox.kill()
"""

Probe = Callable[[], Awaitable[float]]


class Sdk:
    """The SDK in its own process, which runs one command for each line of its input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.sandbox_id, self.token = self._line().split()

    async def command(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(await asyncio.to_thread(self._line))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the SDK gave up; what it said is above")
        return line


@contextmanager
def sdk(server: LocalServer) -> Iterator[Sdk]:
    prepare(PYTHON_NEWEST)
    origin = f"http://127.0.0.1:{server.port}"
    variables = {
        "E2B_API_URL": f"{origin}/e2b",
        "E2B_SANDBOX_URL": origin,
        "E2B_API_KEY": server.key,
        "NO_PROXY": "127.0.0.1",
    }
    process = subprocess.Popen(
        [PYTHON_NEWEST.python, "-c", _SDK], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Sdk(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def connect_request(client: Sdk) -> bytes:
    """The SDK's request for a command: one envelope of Connect's streaming protocol."""
    message = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", _COMMAND]}, "stdin": False}
    body = json.dumps(message).encode()
    envelope = b"\x00" + len(body).to_bytes(4, "big") + body
    head = (
        "POST /process.Process/Start HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"E2b-Sandbox-Id: {client.sandbox_id}\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: {client.token}\r\n"
        "Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\nConnect-Timeout-Ms: 60000\r\n"
        f"Content-Length: {len(envelope)}\r\n\r\n"
    )
    return head.encode() + envelope


async def measure(server: LocalServer, rounds: int) -> None:
    with sdk(server) as client:
        wire, raw = await server.wires(2)
        box = await server.create(wire)
        start, plain = connect_request(client), server.command(box, _COMMAND)
        login = server.command(box, f"exec /bin/bash -l -c {shlex.quote(_COMMAND)}")
        encoded, written = base64.b64encode(b"hi\n"), b'"hi\\n"'
        probes: dict[str, Probe] = {
            "SDK `commands.run`": client.command,
            "the same request without the SDK": lambda: _checked(raw, start, encoded),
            "Paddock `run-command`, by the same login shell": lambda: _checked(wire, login, written),
            _FLOOR: lambda: _checked(wire, plain, written),
        }
        taken: dict[str, list[float]] = {name: [] for name in probes}
        for number in range(rounds + _WARM_UP):
            for name, probe in probes.items():
                seconds = await probe()
                if number >= _WARM_UP:
                    taken[name].append(seconds)
        await server.delete(wire, [box])
    floor = median(taken[_FLOOR])
    rows = [
        (name, milliseconds(median(values)), milliseconds(p99(values)), times(median(values) / floor))
        for name, values in taken.items()
    ]
    head = (f"`{_COMMAND}`, {rounds} rounds", "p50 ms", "p99 ms", "× run-command")
    table("E2B's SDK", head, rows, f"The SDK is Python `{PYTHON_NEWEST.packages[0]}`. {machine()}.")


async def _checked(wire: Wire, message: bytes, expected: bytes) -> float:
    started = time.perf_counter()
    answer = await wire.ask(message)
    seconds = time.perf_counter() - started
    if expected not in answer:
        raise RuntimeError(f"the command said something else: {answer!r}")
    return seconds


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=options.home) as folder:
        progress.print("starting a server")
        async with local_server(Path(folder) / "home", Template()) as server:
            await measure(server, options.rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--home", type=Path, help="where the server keeps its state; default: the system's temp folder")
    asyncio.run(main(parser.parse_args()))
