"""The bridge: who gets in, what passes through, and what a hostile visitor can do, which is nothing."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from paddock import errors
from paddock.machine.agent.bridge import AgentBridge, BridgeEndpoint, BridgeRefused
from paddock.machine.base import ProcessSpec
from tests.agent.conftest import build
from tests.support.waiting import PATIENCE_S
from tests.vendor.remote_agent import ORDINARY, RemoteAgent

ME = str(os.getuid())
_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def head(agent: RemoteAgent, path: str = "/paddock/v1/link", **changes: str | None) -> bytes:
    headers: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": _KEY,
        "X-Paddock-Token": agent.token,
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def answer(agent: RemoteAgent, request: bytes) -> bytes:
    """The first line of what a visitor hears; empty when he is just left alone."""
    with agent.raw() as visitor:
        visitor.sendall(request)
        return _line(visitor)


def _line(visitor: socket.socket) -> bytes:
    said = b""
    try:
        while b"\r\n" not in said and (more := visitor.recv(4096)):
            said += more
    except ConnectionResetError:
        pass
    return said.partition(b"\r\n")[0]


async def works(agent: RemoteAgent) -> None:
    async with agent.machine() as machine:
        info, stdout, _ = await machine.run(ProcessSpec("works", ["echo", "yes"], cwd="/", user=ME), PATIENCE_S)
        assert (info.exit_code, stdout.data) == (0, b"yes\n")


async def test_nobody_gets_in_without_the_token(agent: RemoteAgent) -> None:
    assert b" 101 " in answer(agent, head(agent))
    for token in (None, "", "x" * len(agent.token), agent.token[:-1], agent.token + "0"):
        assert b" 403 " in answer(agent, head(agent, X_Paddock_Token=token))
    agent.show_token("")
    assert b" 403 " in answer(agent, head(agent, X_Paddock_Token=""))


async def test_the_token_may_be_changed_while_it_runs(agent: RemoteAgent) -> None:
    before, agent.token = agent.token, "another-token-of-this-machine"
    agent.show_token(agent.token)

    async def stale() -> BridgeEndpoint:
        return agent.endpoint(before)

    with pytest.raises(BridgeRefused) as refused:
        await AgentBridge(stale).link()
    assert refused.value.http_status == 403
    assert isinstance(refused.value.__cause__, InvalidStatus)
    await works(agent)


async def test_a_head_that_is_none_is_refused_and_hurts_nobody(agent: RemoteAgent) -> None:
    assert b" 404 " in answer(agent, head(agent, "/"))
    assert b" 404 " in answer(agent, head(agent, "/paddock/v1/dial/0"))
    assert b" 404 " in answer(agent, head(agent, "/paddock/v1/dial/65536"))
    assert b" 404 " in answer(agent, head(agent, "/paddock/v1/dial/80/../link"))
    assert b" 404 " in answer(agent, head(agent, "/paddock/v1/accept/80/2"))
    assert b" 426 " in answer(agent, head(agent, Upgrade=None))
    assert b" 426 " in answer(agent, head(agent, Sec_WebSocket_Key="short"))
    assert b" 400 " in answer(agent, head(agent).replace(b"GET ", b"POST "))
    assert b" 400 " in answer(agent, head(agent).replace(b"Host: localhost", b"no header"))
    assert b" 400 " in answer(agent, head(agent).replace(b"localhost", b"local\0host"))
    assert b" 400 " in answer(agent, head(agent).replace(b"HTTP/1.1", b"HTTP/1.0"))
    twice = head(agent).replace(b"Host: localhost", b"X-Paddock-Token: " + agent.token.encode())
    assert b" 400 " in answer(agent, twice)
    assert b" 431 " in answer(agent, b"GET /" + b"x" * 9000)
    await works(agent)


async def test_a_head_may_come_byte_by_byte(agent: RemoteAgent) -> None:
    with agent.raw() as visitor:
        visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head(agent):
            visitor.sendall(bytes([byte]))
        assert b" 101 " in _line(visitor)


async def test_visitors_who_say_nothing_make_room_for_others(agent: RemoteAgent) -> None:
    silent = [agent.raw() for _ in range(150)]
    try:
        await works(agent)
    finally:
        for visitor in silent:
            visitor.close()


@pytest.mark.parametrize("seed", range(3))
async def test_noise_ends_its_own_connection_and_no_other(agent: RemoteAgent, seed: int) -> None:
    chance = random.Random(seed)
    async with agent.machine() as machine:
        before = await machine.usage()
        for _ in range(100):
            with agent.raw() as visitor:
                noise = chance.randbytes(chance.randrange(2000))
                upgraded = chance.random() < 0.7
                visitor.sendall(head(agent) + noise if upgraded else noise)
                if upgraded and chance.random() < 0.5:
                    _line(visitor)
        assert before.disk_total == (await machine.usage()).disk_total
    await works(agent)


@pytest.mark.parametrize("seed", [1, 4711])
def test_mutated_heads_and_frames_find_nothing(seed: int) -> None:
    fuzzer = build("fuzz-bridge")
    done = subprocess.run([fuzzer, "30000", str(seed)], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    inputs, heads, relays = (int(part.split()[0]) for part in done.stdout.split(","))
    assert inputs == 30000
    assert 1000 < heads < 30000 and 1000 < relays < 30000, "some must break the rules, and some must not"


async def test_a_second_one_on_the_same_port_says_so(agent: RemoteAgent) -> None:
    again = subprocess.run(agent.command(), capture_output=True, timeout=60)
    assert again.returncode == 3
    await works(agent)


async def test_large_files_pass_whole_with_little_memory(agent: RemoteAgent) -> None:
    piece, count = os.urandom(1 << 20), 48
    path = str(agent.folder / "large")

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(count):
            yield number.to_bytes(4, "big") + piece

    expected, found = hashlib.sha256(), hashlib.sha256()
    async for chunk in pieces():
        expected.update(chunk)
    async with agent.machine() as machine:
        written = await machine.write_file(path, pieces(), user=ME)
        assert written.size == count * (4 + len(piece))
        most = agent.resident()
        async for chunk in machine.read_file(path, user=ME):
            found.update(chunk)
            most = max(most, agent.resident())
        part = b"".join([chunk async for chunk in machine.read_file(path, 2, 300_000, user=ME)])
    assert found.digest() == expected.digest()
    assert part == (b"\0\0\0\0" + piece)[2 : 2 + 300_000]
    if b"__asan_init" not in agent.binary.read_bytes():
        assert most < 32 << 20


async def test_files_that_give_less_than_asked_for_are_read_to_their_end(agent: RemoteAgent) -> None:
    async with agent.machine() as machine:
        read = b"".join([chunk async for chunk in machine.read_file("/proc/filesystems", user=ME)])
    assert read == Path("/proc/filesystems").read_bytes()


async def test_root_acts_for_every_user(agent_of_root: RemoteAgent) -> None:
    async with agent_of_root.machine() as machine:
        for user, uid in (("root", "0"), (str(ORDINARY), str(ORDINARY))):
            _, stdout, _ = await machine.run(ProcessSpec(f"p{uid}", ["id", "-u"], cwd="/", user=user), PATIENCE_S)
            assert stdout.data.decode().strip() == uid
        secret = agent_of_root.folder / "secret"
        secret.write_text("of root")
        secret.chmod(0o600)
        assert [chunk async for chunk in machine.read_file(str(secret), user="root")] == [b"of root"]
        with pytest.raises(errors.PathDenied):
            [chunk async for chunk in machine.read_file(str(secret), user=str(ORDINARY))]


async def test_an_ordinary_user_acts_for_himself_and_nobody_else(agent_of_a_user: RemoteAgent) -> None:
    uid = str(agent_of_a_user.uid)
    async with agent_of_a_user.machine() as machine:
        _, stdout, _ = await machine.run(ProcessSpec("mine", ["id", "-u"], cwd="/", user=uid), PATIENCE_S)
        assert stdout.data.decode().strip() == uid
        with pytest.raises(errors.Invalid):
            await machine.spawn(ProcessSpec("roots", ["id", "-u"], cwd="/", user=str(agent_of_a_user.uid + 1)))
        with pytest.raises(errors.Invalid):
            await machine.stat("/", user=str(agent_of_a_user.uid + 1))


async def test_what_runs_outlives_the_connection(agent: RemoteAgent) -> None:
    async with agent.machine() as machine:
        await machine.spawn(ProcessSpec("lasting", ["sh", "-c", "echo one; read x; echo $x"], "/", user=ME, stdin=True))
    async with agent.machine() as machine:
        assert (await machine.process("lasting")).running
        await machine.write_stdin("lasting", b"two\n")
        info = await machine.wait("lasting", PATIENCE_S)
        chunks = [chunk.data async for chunk in machine.follow("lasting")]
    assert (info.exit_code, b"".join(chunks)) == (0, b"one\ntwo\n")
