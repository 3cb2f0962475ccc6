"""The real agent on the host itself: what the machine adds to the conformance suite."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.ids import new_process_id
from paddock.machine.agent import AgentMachine
from paddock.machine.base import ProcessSpec, ProcessStatus, Stream
from tests.machine.plain import ENVIRONMENT, PlainAgent
from tests.support.waiting import PATIENCE_S, until


def sh(script: str, **more: object) -> ProcessSpec:
    return ProcessSpec(new_process_id(), ["/bin/sh", "-c", script], cwd="/", **more)  # type: ignore[arg-type]


# Commands in one call


async def test_a_command_in_one_call(machine: AgentMachine) -> None:
    info, stdout, stderr = await machine.run(sh("echo out; echo err >&2; exit 3"), PATIENCE_S)
    assert (info.status, info.exit_code) == (ProcessStatus.COMPLETED, 3)
    assert (stdout.data, stderr.data) == (b"out\n", b"err\n")
    assert (info.stdout_size, info.stderr_size) == (4, 4)


async def test_the_output_in_one_call_is_what_can_be_read_afterwards(machine: AgentMachine) -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 3 << 20):
        spec = sh(f"head -c {size} /dev/zero | tr '\\0' x")
        info, stdout, _ = await machine.run(spec, PATIENCE_S, limit=4 << 20)
        assert (info.stdout_size, stdout.offset, stdout.data) == (size, 0, b"x" * size)
        read = b""
        while (chunk := await machine.read_output(spec.process_id, Stream.STDOUT, len(read))).data:
            read += chunk.data
        assert read == stdout.data


async def test_a_command_that_runs_on_can_be_waited_for_again(machine: AgentMachine) -> None:
    spec = sh("echo begun; read line; echo $line", stdin=True)
    info, stdout, _ = await machine.run(spec, 0.3)
    assert info.running
    assert stdout.data == b"begun\n"
    await machine.write_stdin(spec.process_id, b"on\n")
    assert (await machine.wait(spec.process_id, PATIENCE_S)).exit_code == 0
    assert (await machine.read_output(spec.process_id, Stream.STDOUT)).data == b"begun\non\n"


async def test_the_same_command_again_is_the_same_process(machine: AgentMachine, folder: Path) -> None:
    spec = sh(f"echo run >> {folder}/runs; cat {folder}/runs")
    first = await machine.run(spec, PATIENCE_S)
    assert await machine.run(spec, PATIENCE_S) == first
    assert (folder / "runs").read_text() == "run\n"


async def test_what_a_child_writes_after_the_end_is_not_hidden_by_what_is_kept(
    machine: AgentMachine, folder: Path
) -> None:
    spec = sh(f"(while [ ! -e {folder}/go ]; do sleep 0.01; done; echo late) & echo early")
    _, stdout, _ = await machine.run(spec, PATIENCE_S)
    assert stdout.data == b"early\n"
    (folder / "go").touch()
    async with asyncio.timeout(PATIENCE_S):
        while (await machine.read_output(spec.process_id, Stream.STDOUT, 6)).data != b"late\n":
            await asyncio.sleep(0.01)
    assert (await machine.process(spec.process_id)).stdout_size == 11


async def test_two_hundred_commands_at_once(machine: AgentMachine) -> None:
    ran = await asyncio.gather(*(machine.run(sh(f"echo {n}; exit {n % 100}"), PATIENCE_S) for n in range(200)))
    assert [(info.exit_code, out.data) for info, out, _ in ran] == [(n % 100, b"%d\n" % n) for n in range(200)]


async def test_the_environment_is_complete_and_the_commands_own_wins(agent: PlainAgent) -> None:
    machine = agent.machine({**ENVIRONMENT, "A": "sandbox", "B": "sandbox"})
    try:
        _, stdout, _ = await machine.run(sh("echo $A $B", env={"B": "command"}), PATIENCE_S)
        assert stdout.data == b"sandbox command\n"
    finally:
        await machine.aclose()


# Following


async def test_a_follower_that_pauses_misses_nothing(machine: AgentMachine) -> None:
    spec = sh("seq -f %07.0f 1 1000000")  # eight megabytes
    await machine.spawn(spec)
    given = bytearray()
    async with asyncio.timeout(PATIENCE_S):
        async for chunk in machine.follow(spec.process_id):
            assert chunk.offset == len(given)
            if not given:
                await machine.wait(spec.process_id)
            given += chunk.data
    assert bytes(given) == b"".join(b"%07d\n" % n for n in range(1, 1_000_001))


async def test_leaving_a_flow_and_a_wait_leaves_the_process_alone(machine: AgentMachine) -> None:
    spec = sh("echo up; exec sleep 1000")
    await machine.spawn(spec)
    async for chunk in machine.follow(spec.process_id):
        assert chunk.data == b"up\n"
        break
    waiting = asyncio.create_task(machine.wait(spec.process_id))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await machine.process(spec.process_id)).running
    await machine.signal(spec.process_id, 9)
    assert (await machine.wait(spec.process_id, PATIENCE_S)).exit_code == 137


async def test_writing_to_one_that_does_not_read_can_be_given_up(machine: AgentMachine) -> None:
    spec = sh("exec sleep 1000", stdin=True)
    await machine.spawn(spec)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await machine.write_stdin(spec.process_id, b"x" * (4 << 20))
    await machine.signal(spec.process_id, 9)
    assert (await machine.wait(spec.process_id, PATIENCE_S)).exit_code == 137


# The link


class Cuts:
    """Connects to the agent so that a test can cut the line."""

    def __init__(self, agent: PlainAgent) -> None:
        self._agent = agent
        self.lines: list[socket.socket] = []

    async def connect(self) -> socket.socket:
        line = await self._agent.connect()
        self.lines.append(line.dup())
        return line

    def cut(self) -> None:
        for line in self.lines:
            line.shutdown(socket.SHUT_RDWR)
            line.close()
        self.lines.clear()


@pytest.fixture
async def cuts(agent: PlainAgent) -> AsyncIterator[tuple[AgentMachine, Cuts]]:
    line = Cuts(agent)
    made = AgentMachine("tester_00000000", line.connect, lambda: ENVIRONMENT)
    yield made, line
    await made.aclose()
    line.cut()


async def test_commands_waits_and_flows_survive_a_link_that_is_cut(cuts: tuple[AgentMachine, Cuts]) -> None:
    machine, line = cuts
    spec = sh("echo one; read x; echo two; exit 4", stdin=True)
    running = asyncio.create_task(machine.run(spec, PATIENCE_S))
    flow = machine.follow((await _started(machine, spec)).process_id)
    assert (await anext(flow)).data == b"one\n"
    line.cut()
    await machine.write_stdin(spec.process_id, b"\n")
    assert [chunk.data async for chunk in flow] == [b"two\n"]
    info, stdout, _ = await running
    assert (info.exit_code, stdout.data) == (4, b"one\ntwo\n")


async def _started(machine: AgentMachine, spec: ProcessSpec) -> object:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for info in await machine.processes():
                if info.process_id == spec.process_id:
                    return info
            await asyncio.sleep(0.005)


async def test_what_was_being_written_when_the_link_was_cut_is_not_there(
    cuts: tuple[AgentMachine, Cuts], folder: Path
) -> None:
    machine, line = cuts
    (folder / "file").write_bytes(b"old")

    async def content() -> AsyncIterator[bytes]:
        yield b"new"
        line.cut()

    with pytest.raises(errors.ProviderUnavailable):
        await machine.write_file(str(folder / "file"), content())
    await machine.processes()
    assert (folder / "file").read_bytes() == b"old"
    await until(lambda: [entry.name for entry in folder.iterdir()] == ["file"])


async def test_after_the_agents_own_restart_its_processes_are_lost_and_their_output_is_not(
    agent: PlainAgent, tmp_path: Path
) -> None:
    machine = agent.machine()
    try:
        ended, lost = sh("echo ended"), sh("echo running; exec sleep 1000")
        await machine.run(ended, PATIENCE_S)
        await machine.spawn(lost)
        async for _ in machine.follow(lost.process_id):
            break
        pid = (await machine.process(lost.process_id)).pid
        agent.stop()
        with pytest.raises(errors.ProviderUnavailable):
            await machine.processes()
        assert pid is not None
        os.kill(pid, 9)
        again = PlainAgent(tmp_path)
        try:
            assert (await machine.process(lost.process_id)).status is ProcessStatus.LOST
            assert (await machine.read_output(lost.process_id, Stream.STDOUT)).data == b"running\n"
            assert (await machine.wait(lost.process_id)).status is ProcessStatus.LOST
            assert (await machine.process(ended.process_id)).exit_code == 0
            assert [chunk.data async for chunk in machine.follow(ended.process_id)] == [b"ended\n"]
        finally:
            again.stop()
    finally:
        await machine.aclose()


async def test_a_sandbox_whose_agent_is_gone_is_unavailable_not_gone(agent: PlainAgent, machine: AgentMachine) -> None:
    waiting = asyncio.create_task(machine.wait((await machine.spawn(sh("exec sleep 1000"))).process_id))
    pid = (await machine.processes())[0].pid
    assert pid is not None
    agent.stop()
    os.kill(pid, 9)
    with pytest.raises(errors.ProviderUnavailable):
        await asyncio.wait_for(waiting, PATIENCE_S)
    with pytest.raises(errors.ProviderUnavailable):
        await machine.stat("/")


# Ports, usage, stopping


async def test_listening_inside_and_dialling_it(machine: AgentMachine) -> None:
    port = _free_port()
    with await machine.listen_socket(port) as listener, await machine.listen_socket(port) as same:
        assert listener.getsockname() == same.getsockname() == ("127.0.0.1", port)
        connection = await machine.dial(port)
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            await connection.write(b"ping")
            assert await asyncio.get_running_loop().sock_recv(accepted, 100) == b"ping"
        assert await connection.read() == b""
        await connection.close()
        with await machine.dial_socket(port) as dialled:
            assert dialled.getpeername() == ("127.0.0.1", port)


async def test_a_socket_that_was_made_blocking_does_not_stop_the_server(machine: AgentMachine) -> None:
    """Whoever holds the same socket inside can do that at any time."""
    port = _free_port()
    with await machine.listen_socket(port) as listener:
        connection = await machine.dial(port)
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            os.set_blocking(connection._socket.fileno(), True)  # type: ignore[attr-defined]
            reading = asyncio.create_task(connection.read())
            writing = asyncio.create_task(connection.write(b"x" * (16 << 20)))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert not reading.done() and not writing.done()
            await connection.close()
            assert await reading == b""
            with pytest.raises(errors.Conflict):
                await writing


async def test_a_port_that_is_taken_says_so(machine: AgentMachine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(errors.Conflict):
        await machine.listen_socket(taken.getsockname()[1])


async def test_usage_without_a_providers_own_numbers_is_the_agents(machine: AgentMachine) -> None:
    await machine.run(sh("head -c 20000000 /dev/zero | cksum"), PATIENCE_S)
    stats = await machine.stats()
    assert stats.cpu_count >= 1
    assert stats.memory_total > stats.memory_used >= 0
    assert stats.disk_total >= stats.disk_used > 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
