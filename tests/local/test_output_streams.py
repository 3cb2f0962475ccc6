"""Output through a whole server: who follows and reads misses nothing, who does not is told, and nobody costs much.

The spool is small here, so that what is written is many times more than what is kept.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2b import Sandbox
from websockets.sync.client import connect

from paddock.client import SyncSandboxClient
from paddock.client.answers import Ended, Output
from paddock.client.sse import EventDecoder
from tests.e2b.server import PaddockServer, delete_all

SPOOL = 1 << 20
LINES = 500_000
SIZE = LINES * 16
WRITE = f"seq -f %015.0f 1 {LINES}"
STALL_SECONDS = 12.0
PATIENCE = 120.0
SHA256 = hashlib.sha256(b"".join(b"%015d\n" % n for n in range(1, LINES + 1))).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockServer]:
    settings = {"PADDOCK_OUTPUT_SPOOL": str(SPOOL), "PADDOCK_STALL_TIMEOUT": str(STALL_SECONDS)}
    made = PaddockServer(
        tmp_path_factory.mktemp("streams") / "home", PADDOCK_POOL_SIZE="0", PADDOCK_QUOTA_STREAMS="0", **settings
    )
    made.start()
    try:
        yield made
    finally:
        try:
            delete_all(made)
        finally:
            made.stop()


@pytest.fixture
def client(server: PaddockServer) -> Iterator[SyncSandboxClient]:
    with SyncSandboxClient(server.url, api_key=server.key) as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(server: PaddockServer) -> str:
    with SyncSandboxClient(server.url, api_key=server.key) as made:
        return made.create_sandbox("alice").sandbox_id


@pytest.fixture
def ended(client: SyncSandboxClient, sandbox: str) -> str:
    """A process that wrote far more than is kept while nobody followed it."""
    process_id = client.start_process(sandbox, WRITE).process_id
    assert client.wait_process(sandbox, process_id, timeout=PATIENCE).stdout_size == SIZE
    return process_id


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def unread(server: PaddockServer, path: str, body: Any = None) -> Iterator[socket.socket]:
    """A stream that was asked for and of which only the first bytes are read."""
    content = b"" if body is None else json.dumps(body).encode()
    kind = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    method = "GET" if body is None else "POST"
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", server.port))
        made.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {server.key}\r\n{kind}\r\n".encode() + content)
        assert made.recv(12) == b"HTTP/1.1 200"
        yield made


def held(client: SyncSandboxClient, sandbox: str, process_id: str) -> int:
    """Waits until the process has more to write and does not: its size then."""
    sizes = [-1]

    def rests() -> bool:
        sizes.append(client.get_process(sandbox, process_id).stdout_size)
        return len(sizes) > 10 and sizes[-1] > SPOOL // 2 and len(set(sizes[-10:])) == 1

    until(rests)
    return sizes[-1]


# Those who read


def test_a_streamed_command_is_complete(client: SyncSandboxClient, sandbox: str) -> None:
    seen, at = hashlib.sha256(), 0
    for event in client.stream_command(sandbox, WRITE):
        if isinstance(event, Output):
            assert (event.offset, event.skipped) == (at, 0)
            at += len(event.raw)
            seen.update(event.raw)
    assert isinstance(event, Ended)
    assert (at, event.stdout_size, seen.hexdigest()) == (SIZE, SIZE, SHA256)


def test_a_slow_reader_of_a_streamed_command_gets_all_of_it(server: PaddockServer, sandbox: str) -> None:
    """It rests for a small part of its time: the process waits."""
    decoder, at, rested = EventDecoder(), 0, False
    body = {"sandbox_id": sandbox, "command": WRITE, "stream": True}
    headers = {"X-API-Key": server.key}
    with httpx.stream("POST", f"{server.url}/sandboxes/run-command", json=body, headers=headers, timeout=60) as answer:
        for chunk in answer.iter_raw():
            if not rested:
                rested = True
                time.sleep(STALL_SECONDS / 6)
            for event in decoder.feed(chunk):
                if event.event == "output":
                    data = json.loads(event.data)
                    assert (data["offset"], "skipped" in data) == (at, False)
                    at += len(data["data"])
    assert at == SIZE


def test_a_websocket_gets_all_of_it(server: PaddockServer, client: SyncSandboxClient, sandbox: str) -> None:
    process_id = client.start_process(sandbox, f"read go; {WRITE}", stdin=True).process_id
    path = f"/sandboxes/{sandbox}/processes/{process_id}/ws"
    seen, at = hashlib.sha256(), 0
    headers = {"X-API-Key": server.key}
    with connect(server.url.replace("http", "ws", 1) + path, additional_headers=headers, max_size=None) as ws:
        ws.send(json.dumps({"type": "stdin", "data": base64.b64encode(b"\n").decode()}))
        while (frame := json.loads(ws.recv(PATIENCE)))["type"] != "exit":
            assert (frame["type"], frame["offset"]) == ("stdout", at)
            data = base64.b64decode(frame["data"])
            at += len(data)
            seen.update(data)
    assert seen.hexdigest() == SHA256


def test_the_sdk_of_e2b_gets_all_of_it(server: PaddockServer) -> None:
    place = {"api_url": f"{server.url}/e2b", "sandbox_url": server.url, "api_key": server.key}
    box = Sandbox.create(timeout=300, **place)
    try:
        seen, errors = hashlib.sha256(), io.StringIO()

        def hear(text: str) -> None:
            seen.update(text.encode())

        result = box.commands.run(WRITE, on_stdout=hear, on_stderr=errors.write, timeout=PATIENCE)
        assert (result.exit_code, seen.hexdigest(), errors.getvalue()) == (0, SHA256, "")
    finally:
        box.kill()


def test_the_command_line_gets_all_of_it(server: PaddockServer, sandbox: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from paddock.cli.app import main; main()"]
    environment = {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key, "HOME": str(tmp_path)}
    ran = subprocess.run(
        [*program, "exec", sandbox, "--", *WRITE.split()],
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr, hashlib.sha256(ran.stdout).hexdigest()) == (0, b"", SHA256)


# Those who come late


def test_who_comes_late_is_told_what_is_missing(client: SyncSandboxClient, sandbox: str, ended: str) -> None:
    events = list(client.stream_process(sandbox, ended))
    outputs = [event for event in events if isinstance(event, Output)]
    assert outputs[0].skipped == outputs[0].offset >= SIZE - SPOOL
    assert [event.skipped for event in outputs[1:]] == [0] * (len(outputs) - 1)
    assert outputs[0].skipped + sum(len(event.raw) for event in outputs) == SIZE


def test_an_answer_says_where_it_begins_and_what_is_missing(
    client: SyncSandboxClient, sandbox: str, ended: str
) -> None:
    found = client.read_output(sandbox, ended, stdout_offset=1000)
    assert found.stdout_start - 1000 == found.stdout_skipped >= SIZE - SPOOL - 1000
    assert (found.stderr_start, found.stderr_skipped) == (0, 0)
    assert client.read_output(sandbox, ended, stdout_offset=found.stdout_offset).stdout_skipped == 0


def test_a_command_that_was_waited_for_says_what_is_missing(client: SyncSandboxClient, sandbox: str) -> None:
    ran = client.run_command(sandbox, WRITE, timeout=PATIENCE)
    assert (ran.exit_code, ran.truncated) == (0, True)
    assert ran.stdout_start == ran.stdout_skipped >= SIZE - SPOOL
    assert ran.stdout_offset == ran.stdout_start + len(ran.stdout)
    small = client.run_command(sandbox, "echo all")
    assert (small.stdout_start, small.stdout_skipped, small.truncated) == (0, 0, False)


def test_a_tool_says_what_is_missing(client: SyncSandboxClient, sandbox: str, ended: str) -> None:
    task = client.call_tool(sandbox, "task_output", {"task_id": ended, "stdout_offset": 0})
    told = json.dumps(task.model_dump(), default=str)
    assert "are kept no more" in told
    assert '"stdout_skipped": ' in told


def test_websockets_say_what_is_missing(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str, ended: str
) -> None:
    headers, base = {"X-API-Key": server.key}, server.url.replace("http", "ws", 1) + f"/sandboxes/{sandbox}"
    with connect(f"{base}/processes/{ended}/ws", additional_headers=headers, max_size=None) as ws:
        first = json.loads(ws.recv(PATIENCE))
    assert first["skipped"] == first["offset"] >= SIZE - SPOOL
    terminal = client.start_process(sandbox, WRITE, terminal={"rows": 24, "cols": 80}).process_id
    client.wait_process(sandbox, terminal, timeout=PATIENCE)
    with connect(f"{base}/terminal?process_id={terminal}", additional_headers=headers, max_size=None) as ws:
        assert json.loads(ws.recv(PATIENCE))["type"] == "ready"
        gap = json.loads(ws.recv(PATIENCE))
        assert (gap["type"], gap["skipped"]) == ("gap", gap["offset"])
        assert isinstance(ws.recv(PATIENCE), bytes)


# Those who do not read


def test_a_follower_that_does_not_read_is_waited_for_and_not_for_ever(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    process_id = client.start_process(sandbox, f"read go; {WRITE}", stdin=True).process_id
    with unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"):
        client.write_stdin(sandbox, process_id, "\n")
        # The rest fits in no buffer on the way: somebody has to wait, and then not any more.
        ended = client.wait_process(sandbox, process_id, timeout=PATIENCE)
    assert (ended.exit_code, ended.stdout_size) == (0, SIZE)
    assert ended.ended_at is not None


def test_a_follower_that_leaves_lets_the_process_go_on_at_once(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    process_id = client.start_process(sandbox, "yes", hard_timeout=PATIENCE).process_id
    path = f"/sandboxes/{sandbox}/processes/{process_id}/stream"
    with unread(server, path):
        size = client.get_process(sandbox, process_id).stdout_size
    until(lambda: client.get_process(sandbox, process_id).stdout_size > size + 8 * SPOOL)
    client.send_signal(sandbox, process_id, "SIGKILL")
    assert client.wait_process(sandbox, process_id, timeout=PATIENCE).status == "killed"


def test_a_sandbox_whose_process_waits_for_a_reader_can_be_paused_and_resumed(
    server: PaddockServer, client: SyncSandboxClient
) -> None:
    sandbox = client.create_sandbox("alice").sandbox_id
    process_id = client.start_process(sandbox, "yes").process_id
    with unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"):
        assert client.pause_sandbox(sandbox).status == "paused"
        assert client.resume_sandbox(sandbox).status == "running"
    size = client.get_process(sandbox, process_id).stdout_size
    until(lambda: client.get_process(sandbox, process_id).stdout_size > size + 2 * SPOOL)
    client.delete_sandbox(sandbox)


def test_a_server_that_is_killed_lets_go_of_the_process_and_the_next_one_tells_the_gap(
    tmp_path: Path,
) -> None:
    """Its followers would wait for ever: the time that they may is far longer than the test."""
    settings = {"PADDOCK_OUTPUT_SPOOL": str(SPOOL), "PADDOCK_STALL_TIMEOUT": "3600", "PADDOCK_POOL_SIZE": "0"}
    server = PaddockServer(tmp_path / "home", **settings)
    server.start()
    try:
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            sandbox = client.create_sandbox("alice").sandbox_id
            process_id = client.start_process(sandbox, f"read go; {WRITE}", stdin=True).process_id
            with unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"):
                client.write_stdin(sandbox, process_id, "\n")
                size = held(client, sandbox, process_id)
                assert size < SIZE
                server.restart()
        with SyncSandboxClient(server.url, api_key=server.key) as client:
            assert client.wait_process(sandbox, process_id, timeout=PATIENCE).stdout_size == SIZE
            first = next(iter(client.stream_process(sandbox, process_id, stdout_offset=size)))
            assert isinstance(first, Output)
            assert first.skipped == first.offset - size > 0
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


def test_three_hundred_streams_that_nobody_reads_hold_little_and_give_it_back(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    process_id = client.start_process(sandbox, f"head -c {SPOOL // 2} /dev/zero | tr '\\0' x; sleep 1000").process_id
    until(lambda: client.get_process(sandbox, process_id).stdout_size == SPOOL // 2)
    before = resident(server)
    with ExitStack() as streams:
        for _ in range(300):
            streams.enter_context(unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"))
        peak = max(resident(server) for _ in range(20) if time.sleep(0.05) is None)
    assert peak - before < 300 * (512 << 10)
    until(lambda: resident(server) - before < 64 << 20)
    client.send_signal(sandbox, process_id, "SIGKILL")


def resident(server: PaddockServer) -> int:
    """Bytes."""
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096
