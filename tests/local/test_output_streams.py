"""Output through a whole server: who follows and reads misses nothing, who does not is told, and nobody costs much.

The spool is small here, so that what is written is many times more than what is kept.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
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
from tests.support.waiting import PATIENCE_S, wait_until

SPOOL = 1 << 20
LINES = 500_000
SIZE = LINES * 16
WRITE = f"seq -f %015.0f 1 {LINES}"
STALL_SECONDS = 12.0
MAX_ANSWER = 8 << 20
"""Of each stream in an answer of Daytona's toolbox."""
LARGE_LINES = 1_250_000
LARGE = LARGE_LINES * 16
WRITE_LARGE = f"seq -f %015.0f 1 {LARGE_LINES}"
LATEST = b"".join(b"%015d\n" % n for n in range(LARGE_LINES - MAX_ANSWER // 16 + 1, LARGE_LINES + 1)).decode()
CUT = f"\n[paddock: {LARGE - MAX_ANSWER} bytes of stdout are missing here: an answer has the latest {MAX_ANSWER}]\n"
LATE = re.compile(rb"\n\[paddock: \d+ bytes of stdout are missing here: they were not read in time\]\n")
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
    assert client.wait_process(sandbox, process_id, timeout=PATIENCE_S).stdout_size == SIZE
    return process_id


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
        return len(sizes) > 40 and sizes[-1] > SPOOL // 2 and len(set(sizes[-40:])) == 1

    wait_until(rests)
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
        while (frame := json.loads(ws.recv(PATIENCE_S)))["type"] != "exit":
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

        result = box.commands.run(WRITE, on_stdout=hear, on_stderr=errors.write, timeout=PATIENCE_S)
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
        timeout=PATIENCE_S,
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
    ran = client.run_command(sandbox, WRITE, timeout=PATIENCE_S)
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
        first = json.loads(ws.recv(PATIENCE_S))
    assert first["skipped"] == first["offset"] >= SIZE - SPOOL
    terminal = client.start_process(sandbox, WRITE, terminal={"rows": 24, "cols": 80}).process_id
    client.wait_process(sandbox, terminal, timeout=PATIENCE_S)
    with connect(f"{base}/terminal?process_id={terminal}", additional_headers=headers, max_size=None) as ws:
        assert json.loads(ws.recv(PATIENCE_S))["type"] == "ready"
        gap = json.loads(ws.recv(PATIENCE_S))
        assert (gap["type"], gap["skipped"]) == ("gap", gap["offset"])
        assert isinstance(ws.recv(PATIENCE_S), bytes)


# Clients whose protocol has no word for what is missing


class Toolbox:
    """Daytona's, of one sandbox."""

    def __init__(self, server: PaddockServer, key: str) -> None:
        self.path = f"/daytona/toolbox/{key}/process"
        self.headers = {"Authorization": f"Bearer {server.key}"}
        self._url = server.url

    def post(self, path: str, **body: Any) -> Any:
        url = f"{self._url}{self.path}{path}"
        answer = httpx.post(url, json=body, headers=self.headers, timeout=PATIENCE_S).raise_for_status()
        return answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        url = f"{self._url}{self.path}{path}"
        return httpx.get(url, headers=self.headers, timeout=PATIENCE_S).raise_for_status().json()

    def connect(self, path: str) -> Any:
        address = self._url.replace("http", "ws", 1) + self.path + path
        return connect(address, additional_headers=self.headers, max_size=None)


@pytest.fixture
def toolbox(server: PaddockServer, client: SyncSandboxClient, sandbox: str) -> Toolbox:
    return Toolbox(server, client.connect_sandbox(sandbox).key)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("padding", [0, 200_000], ids=["short", "fed"])
def test_daytonas_execute_has_all_or_says_what_is_missing(toolbox: Toolbox, padding: int) -> None:
    """``fed``: a command that is longer than an argument can be."""
    before = f": {'x' * padding}; "
    ran = toolbox.post("/execute", command=before + WRITE)
    assert (ran["exitCode"], len(ran["result"]), sha256(ran["result"])) == (0, SIZE, SHA256)
    ran = toolbox.post("/execute", command=f"{before}{WRITE_LARGE}; exit 3")
    assert (ran["exitCode"], ran["result"][: len(CUT)]) == (3, CUT)
    assert ran["result"][len(CUT) :] == LATEST


@pytest.mark.parametrize("charts", ["", pytest.param("import matplotlib", marks=pytest.mark.exhaustive)])
def test_daytonas_code_run_has_all_or_says_what_is_missing(toolbox: Toolbox, charts: str) -> None:
    """Where charts are looked for, another part of the server reads the output."""
    code = "try:\n    {0}\nexcept ImportError:\n    pass\nfor n in range(1, {1} + 1):\n    print(f'{{n:015}}')"
    ran = toolbox.post("/code-run", code=code.format(charts or "pass", LINES))
    assert (ran["exitCode"], len(ran["result"]), sha256(ran["result"])) == (0, SIZE, SHA256)
    ran = toolbox.post("/code-run", code=code.format(charts or "pass", LARGE_LINES))
    assert (ran["exitCode"], ran["artifacts"]) == (0, {"charts": []})
    assert ran["result"][: len(CUT)] == CUT
    assert ran["result"][len(CUT) :] == LATEST


def test_daytonas_sessions_have_all_or_say_what_is_missing(toolbox: Toolbox) -> None:
    toolbox.post("/session", sessionId="s")
    ran = toolbox.post("/session/s/exec", command=WRITE)
    assert (ran["exitCode"], sha256(ran["stdout"]), ran["stderr"]) == (0, SHA256, "")
    ran = toolbox.post("/session/s/exec", command=f"{WRITE_LARGE}; echo other >&2")
    logs = toolbox.get(f"/session/s/command/{ran['cmdId']}/logs")
    for told in (ran, logs):
        assert (told["stdout"][: len(CUT)], told["stderr"]) == (CUT, "other\n")
        assert told["stdout"][len(CUT) :] == LATEST
        assert told["output"] == told["stdout"] + told["stderr"]
    with toolbox.connect(f"/session/s/command/{ran['cmdId']}/logs") as ws:  # all of it is on the sandbox's disk
        assert sum(len(frame) - 3 for frame in ws) == LARGE + len("other\n")


def test_a_late_visitor_of_daytonas_terminal_is_told_what_is_missing(
    client: SyncSandboxClient, sandbox: str, toolbox: Toolbox
) -> None:
    known = {process.process_id for process in client.list_processes(sandbox)}
    toolbox.post("/pty", id="t")
    [shell] = [each for each in client.list_processes(sandbox) if each.terminal and each.process_id not in known]
    client.write_stdin(sandbox, shell.process_id, f"{WRITE}\n")
    wait_until(lambda: client.get_process(sandbox, shell.process_id).stdout_size > SIZE)
    with toolbox.connect("/pty/t/connect") as ws:
        assert json.loads(ws.recv(PATIENCE_S)) == {"type": "control", "status": "connected"}
        first = ws.recv(PATIENCE_S)
    assert isinstance(first, bytes) and LATE.match(first)
    client.send_signal(sandbox, shell.process_id, "SIGKILL")


def test_a_slow_reader_with_the_sdk_of_e2b_is_told_what_is_missing(
    server: PaddockServer, client: SyncSandboxClient
) -> None:
    """E2B has no word for a gap: it is a line on stderr, between what was read in time and what is kept."""
    place = {"api_url": f"{server.url}/e2b", "sandbox_url": server.url, "api_key": server.key}
    box = Sandbox.create(timeout=300, **place)
    try:
        begun = box.commands.run(f"{WRITE_LARGE}; echo last", background=True, timeout=0)
        mine = next(each for each in client.iter_sandboxes() if each.key == box.sandbox_id).sandbox_id
        size = LARGE + len("last\n")
        wait_until(lambda: any(process.stdout_size == size for process in client.list_processes(mine)))
        events = list(begun)
    finally:
        box.kill()
    notes = [stderr for _, stderr, _ in events if stderr]
    stdout = "".join(stdout for stdout, _, _ in events if stdout)
    assert notes and all(LATE.fullmatch(note.encode()) for note in notes)
    assert len(stdout) + sum(int(re.findall(r"\d+", note)[0]) for note in notes) == size
    assert stdout.endswith("last\n")


def test_a_model_is_told_over_mcp_what_is_missing(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    place = client.connect_sandbox(sandbox)
    call = {"tool": "run_command", "args": {"command": WRITE}}
    headers = {"Authorization": f"Bearer {server.key}"}
    answer = httpx.post(str(place.mcp_url), json=call, headers=headers, timeout=PATIENCE_S).raise_for_status().json()
    assert (answer["success"], answer["data"]["truncated"]) == (True, True)
    assert f"[{answer['data']['stdout_skipped']} bytes of stdout before this are kept no more" in answer["result"]


# Those who do not read


def test_a_follower_that_does_not_read_is_waited_for_and_not_for_ever(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    process_id = client.start_process(sandbox, f"read go; {WRITE}", stdin=True).process_id
    with unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"):
        client.write_stdin(sandbox, process_id, "\n")
        # The rest fits in no buffer on the way: somebody has to wait, and then not any more.
        ended = client.wait_process(sandbox, process_id, timeout=PATIENCE_S)
    assert (ended.exit_code, ended.stdout_size) == (0, SIZE)
    assert ended.ended_at is not None


def test_a_follower_that_leaves_lets_the_process_go_on_at_once(
    server: PaddockServer, client: SyncSandboxClient, sandbox: str
) -> None:
    process_id = client.start_process(sandbox, "yes", hard_timeout=PATIENCE_S).process_id
    path = f"/sandboxes/{sandbox}/processes/{process_id}/stream"
    with unread(server, path):
        size = client.get_process(sandbox, process_id).stdout_size
    wait_until(lambda: client.get_process(sandbox, process_id).stdout_size > size + 8 * SPOOL)
    client.send_signal(sandbox, process_id, "SIGKILL")
    assert client.wait_process(sandbox, process_id, timeout=PATIENCE_S).status == "killed"


def test_a_sandbox_whose_process_waits_for_a_reader_can_be_paused_and_resumed(
    server: PaddockServer, client: SyncSandboxClient
) -> None:
    sandbox = client.create_sandbox("alice").sandbox_id
    process_id = client.start_process(sandbox, "yes").process_id
    with unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"):
        assert client.pause_sandbox(sandbox).status == "paused"
        assert client.resume_sandbox(sandbox).status == "running"
    size = client.get_process(sandbox, process_id).stdout_size
    wait_until(lambda: client.get_process(sandbox, process_id).stdout_size > size + 2 * SPOOL)
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
            assert client.wait_process(sandbox, process_id, timeout=PATIENCE_S).stdout_size == SIZE
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
    wait_until(lambda: client.get_process(sandbox, process_id).stdout_size == SPOOL // 2)
    before = resident(server)
    with ExitStack() as streams:
        for _ in range(300):
            streams.enter_context(unread(server, f"/sandboxes/{sandbox}/processes/{process_id}/stream"))
        peak = max(resident(server) for _ in range(20) if time.sleep(0.05) is None)
    assert peak - before < 300 * (512 << 10)
    wait_until(lambda: resident(server) - before < 64 << 20)
    client.send_signal(sandbox, process_id, "SIGKILL")


def resident(server: PaddockServer) -> int:
    """Bytes."""
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096
