"""An agent that no descriptor can be given to: its bridge listens on a unix socket, with everything in it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint, BridgeRefused
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import ProcessSpec
from tests.support.waiting import PATIENCE_S

TOKEN = "0123456789abcdef0123456789abcdef"
ME = str(os.getuid())


class Kernel:
    """Another kernel than ours, as far as the agent can tell."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.door, self.token, self.filter = folder / "door", folder / "token", folder / "filter"
        self.keep = folder / "state"
        self.token.write_text(TOKEN)
        self.filter.write_bytes(struct.pack("<II", 0, 0))
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        options = {"bridge": self.door, "token": self.token, "keep": self.keep, "filter": self.filter, "mode": "plain"}
        return [
            str(self.binary),
            "serve",
            *(word for name, value in options.items() for word in (f"--{name}", str(value))),
        ]

    def start(self) -> None:
        self.process = subprocess.Popen(self.command(), stderr=subprocess.PIPE)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    async def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.door))
        except OSError:
            connection.close()
            raise
        connection.setblocking(False)
        return connection

    @asynccontextmanager
    async def machine(self, token: str = TOKEN) -> AsyncIterator[AgentMachine]:
        async def endpoint() -> BridgeEndpoint:
            return BridgeEndpoint("ws://agent", {TOKEN_HEADER: token}, self.connect)

        bridge = AgentBridge(endpoint)
        environment = {"PATH": os.environ["PATH"]}
        machine = AgentMachine("inside", bridge.link, lambda: environment, bridge=bridge, reply_seconds=PATIENCE_S)
        try:
            yield machine
        finally:
            await machine.aclose()
            await bridge.close()


@pytest.fixture
def kernel(plain_binary: Path) -> Iterator[Kernel]:
    folder = Path(f"/tmp/paddock-door-{os.getpid()}-{os.urandom(4).hex()}")  # short, as a socket's path must be
    folder.mkdir(mode=0o700)
    made = Kernel(plain_binary, folder)
    yield made
    made.end()
    subprocess.run(["rm", "-rf", folder], check=True)


async def _says(machine: AgentMachine, word: str) -> None:
    info, stdout, _ = await machine.run(ProcessSpec(word, ["echo", word], cwd="/", user=ME), PATIENCE_S)
    assert (info.exit_code, stdout.data) == (0, f"{word}\n".encode())


async def _started(kernel: Kernel) -> None:
    kernel.start()
    assert kernel.process is not None
    async with asyncio.timeout(PATIENCE_S):
        while not await _answers(kernel):
            assert kernel.process.poll() is None, "the agent has ended"
            await asyncio.sleep(0.01)


async def _answers(kernel: Kernel) -> bool:
    try:
        (await kernel.connect()).close()
    except OSError:
        return False
    return True


async def test_it_is_a_machine_like_any_other(kernel: Kernel) -> None:
    await _started(kernel)
    async with kernel.machine() as machine:
        await _says(machine, "through")


async def test_it_says_that_it_listens_before_anybody_comes(kernel: Kernel) -> None:
    await _started(kernel)

    async def endpoint() -> BridgeEndpoint:
        return BridgeEndpoint("ws://agent", {TOKEN_HEADER: TOKEN}, kernel.connect)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bridge, listens = AgentBridge(endpoint), asyncio.Event()
    waiting = asyncio.create_task(bridge.accept(port, 0, listens.set))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await listens.wait()
        assert not waiting.done()
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S):
            async with asyncio.timeout(PATIENCE_S):
                await (await waiting).close()
    finally:
        waiting.cancel()
        await bridge.close()


async def test_its_door_is_its_owner_s_and_asks_for_the_token(kernel: Kernel) -> None:
    await _started(kernel)
    assert kernel.door.stat().st_mode & 0o777 == 0o600
    async with kernel.machine("not the token, but long enough") as machine:
        with pytest.raises(BridgeRefused):
            await _says(machine, "never")


async def test_a_door_that_an_earlier_start_left_is_replaced(kernel: Kernel) -> None:
    await _started(kernel)
    async with kernel.machine() as machine:
        await _says(machine, "first")
    kernel.end()
    assert kernel.door.is_socket()
    await _started(kernel)
    async with kernel.machine() as machine:
        await _says(machine, "second")
        assert {info.process_id for info in await machine.processes()} == {"first", "second"}


@pytest.mark.parametrize(
    "wrong",
    [
        ["--bridge", "/x", "--keep", "/y"],
        ["--bridge", "/x", "--token", "/t"],
        ["--bridge", "/x", "--token", "relative", "--keep", "/y"],
        ["--bridge", "/x", "--token", "/t", "--keep", "/y", "--birth", "/z"],
        ["--birth", "/x", "--keep", "/y", "--token", "/t"],
    ],
)
def test_half_a_beginning_is_refused(plain_binary: Path, wrong: list[str]) -> None:
    done = subprocess.run([plain_binary, "serve", *wrong, "--mode", "plain"], capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert b"usage" in done.stderr


def test_without_its_filter_it_does_not_begin(kernel: Kernel) -> None:
    kernel.filter.unlink()
    done = subprocess.run(kernel.command(), capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert b"no filter" in done.stderr
