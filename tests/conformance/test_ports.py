"""Ports and usage: reached without taking a port of the host, counted truly."""

from __future__ import annotations

import asyncio

import pytest

from paddock import errors
from paddock.machine.base import Machine
from paddock.providers.base import SandboxSpec
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b'|end')
socketserver.ThreadingTCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer(('127.0.0.1', 8000), Echo) as server:
    print('up', flush=True)
    server.serve_forever()
"""


@pytest.fixture
async def echo(shell: Shell) -> Machine:
    await shell.put("/workspace/echo.py", ECHO)
    await shell.until(await shell.start("exec python3 echo.py"), b"up")
    return shell.machine


async def test_bytes_go_to_a_port_and_back_and_each_side_may_end_first(echo: Machine) -> None:
    connection = await echo.dial(8000)
    await connection.write(b"hello \xff")
    assert await connection.read() == b"hello \xff"
    await connection.end_write()
    rest = b""
    async with asyncio.timeout(PATIENCE_S):
        while data := await connection.read():
            rest += data
    assert rest == b"|end"
    await connection.close()


async def test_a_megabyte_goes_through_both_ways_at_once(echo: Machine) -> None:
    connection = await echo.dial(8000)
    data = bytes(range(256)) * 4096

    async def send() -> None:
        await connection.write(data)
        await connection.end_write()

    async def receive() -> bytes:
        got = b""
        while chunk := await connection.read():
            got += chunk
        return got

    async with asyncio.timeout(PATIENCE_S):
        _, got = await asyncio.gather(send(), receive())
    assert got == data + b"|end"
    await connection.close()


async def test_several_connections_at_once(echo: Machine) -> None:
    async def one(n: int) -> bytes:
        connection = await echo.dial(8000)
        await connection.write(b"%d" % n)
        answer = await connection.read()
        await connection.close()
        return answer

    assert await asyncio.gather(*(one(n) for n in range(8))) == [b"%d" % n for n in range(8)]


async def test_dialling_leaves_no_trace_among_the_processes(echo: Machine) -> None:
    before = await echo.processes()
    await (await echo.dial(8000)).close()
    assert [info.process_id for info in await echo.processes()] == [info.process_id for info in before]


async def test_a_port_where_nothing_listens_says_so(shell: Shell) -> None:
    with pytest.raises(errors.Conflict, match="8001"):
        await shell.machine.dial(8001)
    await shell.run("true")
    with pytest.raises(errors.Conflict, match="8001"):
        await shell.machine.dial(8001)


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_a_number_that_is_no_port_is_refused(machine: Machine, port: int) -> None:
    with pytest.raises(errors.Invalid):
        await machine.dial(port)


async def test_a_port_of_the_host_is_not_reached(shell: Shell) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(errors.Conflict):
            await shell.machine.dial(port)
        assert (await shell.run(f"bash -c 'echo > /dev/tcp/127.0.0.1/{port}'")).code != 0


async def test_usage_is_zero_before_and_real_after(installation: Installation, shell: Shell, spec: SandboxSpec) -> None:
    idle = await shell.machine.stats()
    assert idle.process_count == 0
    assert idle.cpu_count == spec.resources.cpu
    if installation.sizes:
        assert idle.memory_total == spec.resources.memory_mb << 20
        assert idle.disk_total == spec.resources.disk_mb << 20
    await shell.put("/workspace/file", b"x" * (8 << 20))
    script = "x = bytearray(40 << 20); n = sum(range(3_000_000)); print('up', flush=True); input()"
    process = await shell.start(f'exec python3 -c "{script}"', stdin=True)
    await shell.until(process, b"up")
    busy = await shell.machine.stats()
    assert busy.process_count == 1
    assert 40 << 20 <= busy.memory_used < 400 << 20
    async with asyncio.timeout(PATIENCE_S):  # what is dear to measure is not measured at every look
        while (await shell.machine.stats()).disk_used - idle.disk_used < 8 << 20:
            await asyncio.sleep(0.1)
    assert 0 < busy.cpu_seconds < 60
    await shell.machine.close_stdin(process)
    await shell.machine.wait(process, PATIENCE_S)
    after = await shell.machine.stats()
    assert after.process_count == 0
    assert after.cpu_seconds >= busy.cpu_seconds * 0.9
