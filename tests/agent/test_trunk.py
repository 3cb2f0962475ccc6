"""Many connections over one pipe: each as if it were alone, and none left when the pipe is cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock import errors
from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.agent.multiplexer import CHANNELS, WINDOW, Multiplexer
from paddock.machine.agent.wire import ProtocolError
from paddock.machine.base import ProcessSpec
from tests.agent.conftest import build
from tests.agent.test_bridge_door import ME, TOKEN, Kernel, _started, kernel  # noqa: F401 - a fixture
from tests.support.waiting import PATIENCE_S, until

Guest = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Inner:
    """The trunk's program, with its standard streams as the pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read(65536)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def opened(binary: Path, door: Path) -> tuple[Multiplexer, Inner]:
    process = await asyncio.create_subprocess_exec(
        binary, "trunk", str(door), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    inner = Inner(process)
    trunk = Multiplexer(inner)
    await trunk.start()
    return trunk, inner


@asynccontextmanager
async def between(binary: Path, folder: Path, guest: Guest) -> AsyncIterator[Multiplexer]:
    """A trunk to a socket where ``guest`` answers."""
    door = folder / "door"
    server = await asyncio.start_unix_server(guest, door, backlog=CHANNELS)
    trunk, _ = await opened(binary, door)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield trunk
    finally:
        await trunk.close()
        server.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as the path of a socket must be."""
    made = Path(tempfile.mkdtemp(prefix="paddock-trunk-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def say(connection: socket.socket, data: bytes) -> bytes:
    """All of it, and the end; answers with all that came back."""
    loop = asyncio.get_running_loop()

    async def send() -> None:
        await loop.sock_sendall(connection, data)
        connection.shutdown(socket.SHUT_WR)

    sending = asyncio.create_task(send())
    got = bytearray()
    while piece := await loop.sock_recv(connection, 65536):
        got += piece
    await sending
    connection.close()
    return bytes(got)


async def test_what_goes_in_on_one_comes_out_on_the_same_and_ends_with_it(binary: Path, folder: Path) -> None:
    async with between(binary, folder, echo) as trunk:
        words = [os.urandom(size) for size in (1, 1000, WINDOW - 1, 3 * WINDOW + 17, 2_000_000)]
        assert await asyncio.gather(*[say(await trunk.connect(), word) for word in words]) == words


async def test_one_that_nobody_reads_holds_up_no_other(binary: Path, folder: Path) -> None:
    async with between(binary, folder, echo) as trunk:
        stuck = await trunk.connect()
        pouring = asyncio.create_task(asyncio.get_running_loop().sock_sendall(stuck, bytes(20 << 20)))
        word = os.urandom(1 << 20)
        assert await say(await trunk.connect(), word) == word
        assert not pouring.done(), "what nobody takes is not read either"
        pouring.cancel()
        stuck.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Three of each connection are here; many systems give 1,024 unless asked for more."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 4 * CHANNELS:
        pytest.skip(f"no more than {most} descriptors are given here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, 4 * CHANNELS), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.usefixtures("many_descriptors")
async def test_numbers_are_used_again_and_more_than_there_are_is_refused(binary: Path, folder: Path) -> None:
    async with between(binary, folder, echo) as trunk:
        for _ in range(3):
            held = [await trunk.connect() for _ in range(CHANNELS)]
            with pytest.raises(errors.ProviderUnavailable, match="connections to this sandbox already"):
                await trunk.connect()
            words = [b"%d" % number for number in range(CHANNELS)]
            assert await asyncio.gather(*map(say, held, words)) == words
            await until(lambda: len(trunk._free) == CHANNELS)


async def test_where_nobody_listens_the_connection_ends_at_once_and_the_trunk_goes_on(
    binary: Path, folder: Path
) -> None:
    async with between(binary, folder, echo) as trunk:
        (folder / "door").rename(folder / "elsewhere")
        lost = await trunk.connect()
        assert await asyncio.get_running_loop().sock_recv(lost, 1) == b""
        lost.close()
        (folder / "elsewhere").rename(folder / "door")
        assert await say(await trunk.connect(), b"again") == b"again"


async def test_who_hangs_up_inside_is_heard_outside_with_all_that_he_said(binary: Path, folder: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(WINDOW * 2))
        writer.close()

    async with between(binary, folder, speak) as trunk:
        assert len(await say(await trunk.connect(), b"")) == WINDOW * 2


async def test_a_trunk_that_is_cut_takes_all_with_it_and_says_so(binary: Path, folder: Path) -> None:
    server = await asyncio.start_unix_server(echo, folder / "door")
    trunk, inner = await opened(binary, folder / "door")
    held = [await trunk.connect() for _ in range(3)]
    inner.process.kill()
    async with asyncio.timeout(PATIENCE_S):
        for connection in held:
            assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""
            connection.close()
    with pytest.raises(errors.ProviderUnavailable, match="was cut"):
        await trunk.connect()
    await trunk.close()
    server.close()


async def test_its_inner_end_ends_with_its_input(binary: Path, folder: Path) -> None:
    words = [binary, "trunk", str(folder / "door")]
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 0


async def test_its_inner_end_ends_when_nobody_says_anything_for_long(binary: Path, folder: Path) -> None:
    """Some engines keep its input open when the server has long gone."""
    process = await asyncio.create_subprocess_exec(
        *(binary, "trunk", str(folder / "door"), "-", "1"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == 1


@pytest.mark.parametrize("wrong", [["-", "0"], ["-", "x"], ["/no/such/filter"]])
def test_it_does_not_begin_otherwise_than_it_was_told_to(plain_binary: Path, wrong: list[str]) -> None:
    done = subprocess.run([plain_binary, "trunk", "/nowhere", *wrong], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("wrong", [b"sh: not found\n", b"\0\0\1\0\4\0\0\0\2\0\0\0", b""], ids=["words", "newer", "end"])
async def test_whoever_begins_otherwise_is_no_trunk(wrong: bytes) -> None:
    class Other:
        def __init__(self) -> None:
            self.left = [wrong, b""]

        async def read(self) -> bytes:
            return self.left.pop(0)

        async def write(self, data: bytes) -> None:
            raise AssertionError(data)

        async def close(self) -> None:
            pass

    with pytest.raises((ProtocolError, errors.ProviderUnavailable)):
        await Multiplexer(Other()).start()


async def test_a_whole_machine_over_it_also_after_it_was_cut(kernel: Kernel) -> None:  # noqa: F811
    await _started(kernel)
    trunks: list[tuple[Multiplexer, Inner]] = []

    async def connect() -> socket.socket:
        if not trunks or not trunks[-1][0].alive:
            trunks.append(await opened(kernel.binary, kernel.door))
        return await trunks[-1][0].connect()

    async def endpoint() -> BridgeEndpoint:
        return BridgeEndpoint("ws://agent", {TOKEN_HEADER: TOKEN}, connect)

    bridge = AgentBridge(endpoint)
    environment = {"PATH": os.environ["PATH"]}
    machine = AgentMachine("inside", bridge.link, lambda: environment, bridge=bridge, reply_seconds=PATIENCE_S)

    async def says(word: str) -> bytes:
        return (await machine.run(ProcessSpec(word, ["echo", word], cwd="/", user=ME), PATIENCE_S))[1].data

    try:
        assert await says("through") == b"through\n"
        trunks[0][1].process.kill()
        await until(lambda: not trunks[0][0].alive)
        assert [info.process_id for info in await machine.processes()] == ["through"]
        assert await says("again") == b"again\n"
    finally:
        await machine.aclose()
        await bridge.close()
        for trunk, _ in trunks:
            await trunk.close()


@pytest.mark.parametrize("seed", [1, 4711])
def test_mutated_frames_find_nothing(seed: int) -> None:
    done = subprocess.run(
        [build("fuzz-trunk"), "30000", str(seed)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    inputs, trunks = (int(part.split()[0]) for part in done.stdout.split(","))
    assert inputs == 30000
    assert 100 < trunks < 30000, "some inputs must break the rules, and some must not"
