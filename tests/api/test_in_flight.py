"""Bytes in flight: who asks for much and reads nothing takes a bounded part of the server's memory, and of its time."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.accounts.byte_budget import SMALL, ByteBudget, Reservation
from paddock.errors import Overloaded, TooManyBytes
from paddock.settings import Settings
from tests.api.conftest import LiveServer, running
from tests.api.test_connections import changed, dial, post
from tests.e2b.server import PaddockServer
from tests.support.waiting import wait_until

_MIB = 1 << 20


def new_sandbox(server: LiveServer, size: int) -> str:
    """With a file of so many bytes, /workspace/big."""
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        made = client.post("/sandboxes/create", json={"user_id": "alice"}).json()["sandbox_id"]
        body = b"x" * size
        client.put(f"/sandboxes/{made}/files", params={"path": "/workspace/big"}, content=body).raise_for_status()
    return str(made)


def ask_for_file(server: LiveServer, sandbox_id: str, stack: ExitStack) -> socket.socket:
    sock = stack.enter_context(dial(server))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = json.dumps({"sandbox_id": sandbox_id, "path": "/workspace/big"}).encode()
    sock.sendall(post(server, "/sandboxes/read-file", body))
    return sock


def status_of(sock: socket.socket) -> int:
    return int(sock.recv(12).split()[1])


def memory_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    raise AssertionError


def test_answers_that_nobody_reads_take_no_more_than_the_budget(tmp_path: Path) -> None:
    process = PaddockServer(tmp_path / "home", PADDOCK_USER_BYTES_IN_FLIGHT=str(100 * _MIB), PADDOCK_POOL_SIZE="0")
    process.start()
    try:
        server = LiveServer(process.url, process.key, None)  # type: ignore[arg-type]
        sandbox_id = new_sandbox(server, 30 * _MIB)
        before = memory_mb(process.pid)
        with ExitStack() as stack:
            unread = [ask_for_file(server, sandbox_id, stack) for _ in range(30)]
            statuses = sorted(status_of(sock) for sock in unread)
            assert statuses == [200] * 3 + [429] * 27
            held = memory_mb(process.pid) - before
            assert held < 100 + 60, f"{held} MB"
            with httpx.Client(base_url=server.url, headers=server.headers) as other:
                assert other.get("/health").status_code == 200
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            wish = {"sandbox_id": sandbox_id, "path": "/workspace/big"}
            answer = wait_until(lambda: _good(client.post("/sandboxes/read-file", json=wish)))
            assert answer.json()["size"] == len(answer.json()["content"]) == 30 * _MIB
            client.delete(f"/sandboxes/{sandbox_id}")
    finally:
        process.stop()


def _good(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.status_code == 200 else None


def test_a_refusal_says_when_to_come_again(settings: Settings) -> None:
    with running(changed(settings, user_bytes_in_flight=3 * _MIB)) as server:
        sandbox_id = new_sandbox(server, 4 * _MIB)
        with httpx.Client(base_url=server.url, headers=server.headers) as client:
            wish = {"sandbox_id": sandbox_id, "path": "/workspace/big"}
            refused = client.post("/sandboxes/read-file", json=wish)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_bytes")
            assert refused.headers["retry-after"] == "1"
            streamed = client.get(f"/sandboxes/{sandbox_id}/files", params={"path": "/workspace/big"})
            assert len(streamed.content) == 4 * _MIB


def test_who_reads_nothing_for_long_is_let_go(settings: Settings) -> None:
    limits: dict[str, Any] = {"stall_timeout": 1.0, "user_bytes_in_flight": 48 * _MIB}
    with running(changed(settings, **limits)) as server, ExitStack() as stack:
        sandbox_id = new_sandbox(server, 32 * _MIB)
        unread = ask_for_file(server, sandbox_id, stack)
        assert status_of(unread) == 200
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            wish = {"sandbox_id": sandbox_id, "path": "/workspace/big"}
            assert client.post("/sandboxes/read-file", json=wish).status_code == 429
            assert wait_until(lambda: _good(client.post("/sandboxes/read-file", json=wish)))
        with pytest.raises(ConnectionResetError):
            while unread.recv(_MIB):
                pass


def test_bodies_are_counted_as_they_come(settings: Settings) -> None:
    with running(changed(settings, user_bytes_in_flight=6 * _MIB)) as server:
        sandbox_id = new_sandbox(server, 1)
        body = {"sandbox_id": sandbox_id, "path": "/workspace/new", "content": "x" * 3 * _MIB}
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            refused = client.post("/sandboxes/write-file", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_bytes")
            small = client.post("/sandboxes/write-file", json={**body, "content": "x" * _MIB})
            assert small.status_code == 200, small.text


def test_a_command_that_has_run_is_answered_though_there_is_no_room_for_its_output(settings: Settings) -> None:
    with running(changed(settings, user_bytes_in_flight=_MIB)) as server:
        sandbox_id = new_sandbox(server, 1)
        command = {"sandbox_id": sandbox_id, "command": "head -c 800000 /dev/zero | tr '\\0' x"}
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            answer = client.post("/sandboxes/run-command", json=command).raise_for_status().json()
            assert (answer["exit_code"], answer["truncated"]) == (0, True)
            assert answer["stdout"] == "x" * answer["stdout_offset"] and answer["stdout_offset"] < SMALL
            rest = client.get(
                f"/sandboxes/{sandbox_id}/processes/{answer['process_id']}/output",
                params={"stdout_offset": answer["stdout_offset"], "limit": 100_000},
            )
            assert len(rest.raise_for_status().json()["stdout"]) == 100_000


@pytest.mark.parametrize("encoding", ["utf-8", "base64"])
def test_a_large_file_comes_whole_as_json(settings: Settings, encoding: str) -> None:
    """Written in pieces, none of which cuts a character or a group of base64 in two."""
    text = 'ü"\\\n\u0001€𝄞' * 60_000
    with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        sandbox_id = client.post("/sandboxes/create", json={"user_id": "alice"}).json()["sandbox_id"]
        path = {"path": "/workspace/big"}
        client.put(f"/sandboxes/{sandbox_id}/files", params=path, content=text.encode()).raise_for_status()
        wish = {"sandbox_id": sandbox_id, "encoding": encoding, **path}
        answer = client.post("/sandboxes/read-file", json=wish).raise_for_status().json()
        got = answer["content"] if encoding == "utf-8" else base64.b64decode(answer["content"]).decode()
        assert got == text
        assert (answer["size"], answer["encoding"], answer["success"]) == (len(text.encode()), encoding, True)
        broken = text.encode() + b"\xff"
        client.put(f"/sandboxes/{sandbox_id}/files", params=path, content=broken).raise_for_status()
        if encoding == "utf-8":
            assert client.post("/sandboxes/read-file", json=wish).status_code == 422


def test_open_streams_have_a_limit(settings: Settings) -> None:
    with running(settings) as server, httpx.Client(base_url=server.url, headers=server.headers) as admin:
        key = admin.post("/keys", json={"name": "mallory"}).json()["key"]
        admin.patch("/users/mallory", json={"quota": {"max_streams": 1}}).raise_for_status()
        headers = {"X-API-Key": key}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
            sandbox_id = client.post("/sandboxes/create", json={"user_id": "alice"}).json()["sandbox_id"]
            watch = f"/sandboxes/{sandbox_id}/files/watch"
            with client.stream("GET", watch) as first:
                assert first.status_code == 200
                refused = client.get(watch)
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, "quota_exceeded")
            with wait_until(lambda: _opened(client, watch)) as again:
                assert again.status_code == 200


def _opened(client: httpx.Client, path: str) -> Any:
    stream = client.stream("GET", path)
    answer = stream.__enter__()
    if answer.status_code == 200:
        stack = ExitStack()
        stack.push(stream.__exit__)
        return _Entered(stack, answer)
    stream.__exit__(None, None, None)
    return None


class _Entered:
    def __init__(self, stack: ExitStack, answer: httpx.Response) -> None:
        self._stack = stack
        self._answer = answer

    def __enter__(self) -> httpx.Response:
        return self._answer

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


def test_a_budget_is_for_all_and_for_each() -> None:
    budget = ByteBudget(in_all=3 * _MIB, per_user=2 * _MIB)
    alice, bob = Reservation(budget), Reservation(budget)
    alice.belongs_to("alice")
    bob.belongs_to("bob")
    alice.reserve(2 * _MIB)
    with pytest.raises(TooManyBytes):
        alice.reserve(2 * _MIB + 1)
    with pytest.raises(Overloaded):
        bob.reserve(2 * _MIB)
    alice.release()
    bob.reserve(2 * _MIB)
    bob.release()
    assert budget.used == 0
