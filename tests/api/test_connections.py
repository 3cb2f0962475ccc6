"""Connections: those who say nothing, or show no key, never keep those at work from being served."""

from __future__ import annotations

import asyncio
import json
import resource
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.client import SyncSandboxClient
from paddock.gateway.connections import ConnectionLimits, Connections, TrackedConnection
from paddock.settings import Settings
from tests.api.conftest import LiveServer, running
from tests.e2b.server import PaddockServer
from tests.support import local_home
from tests.support.waiting import PATIENCE_S, wait_until


def changed(settings: Settings, **values: Any) -> Settings:
    return settings.model_copy(update=values)


def dial(server: LiveServer, source: str = "127.0.0.1") -> socket.socket:
    port = int(server.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(source, 0))


def ask(sock: socket.socket, path: str, key: str | None = None) -> bytes:
    """A request on this very connection; the head of its answer."""
    header = f"X-API-Key: {key}\r\n" if key else ""
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: paddock.test\r\n{header}\r\n".encode())
    answer = sock.makefile("rb")
    head = b""
    while (line := answer.readline()) != b"\r\n":
        assert line, "the connection was closed"
        head += line
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length"))
    answer.read(length)
    return head


def post(server: LiveServer, path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: paddock.test\r\nX-API-Key: {server.key}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def waiting(connections: Connections) -> tuple[int, ...]:
    """How many of each kind could be let go of."""
    return tuple(map(len, connections._waiting))


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        sock.settimeout(PATIENCE_S)


def until_closed(sock: socket.socket) -> None:
    assert sock.recv(1) == b""


def test_the_oldest_silent_connection_makes_room(settings: Settings) -> None:
    with running(changed(settings, max_connections=8)) as server, ExitStack() as stack:
        silent = []
        for number in range(4):
            silent.append(stack.enter_context(dial(server)))
            wait_until(lambda held=number + 1: len(server.server.connections) == held)
        newcomer = stack.enter_context(dial(server))
        assert ask(newcomer, "/health").startswith(b"HTTP/1.1 200")
        until_closed(silent[0])
        assert all(is_open(sock) for sock in silent[1:])


def test_those_with_a_key_outlive_those_without(settings: Settings) -> None:
    with running(changed(settings, max_connections=8)) as server, ExitStack() as stack:

        def come(key: str | None) -> socket.socket:
            sock = stack.enter_context(dial(server))
            status = b"HTTP/1.1 200" if key else b"HTTP/1.1 401"
            assert ask(sock, "/sandboxes", key).startswith(status)
            return sock

        known = [come(server.key) for _ in range(5)]
        strangers = [come(None) for _ in range(2)]
        for _ in range(3):
            come(server.key)
        for sock in strangers:
            until_closed(sock)
        assert all(is_open(sock) for sock in known)
        # All places are theirs now: the one that has been idle for longest goes, and nobody is turned away.
        for _ in range(3):
            come(server.key)
        until_closed(known[0])


def test_what_is_at_work_is_not_cut_and_who_comes_then_is_told_so(settings: Settings) -> None:
    with running(changed(settings, max_connections=8)) as server, ExitStack() as stack:
        with httpx.Client(base_url=server.url, headers=server.headers) as client:
            sandbox_id = client.post("/sandboxes/create", json={"user_id": "alice"}).json()["sandbox_id"]
        command = "while [ ! -e go ]; do sleep 0.05; done; echo done"
        body = json.dumps({"sandbox_id": sandbox_id, "command": command, "timeout": 2 * PATIENCE_S}).encode()
        connections, working = server.server.connections, []
        for number in range(8):
            working.append(stack.enter_context(dial(server)))
            working[-1].sendall(post(server, "/sandboxes/run-command", body))
            wait_until(lambda at_work=number + 1: len(connections) == at_work and not any(waiting(connections)))
        with dial(server) as late:
            head, _, said = b"".join(iter(lambda: late.recv(4096), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in head
        assert json.loads(said)["error"]["code"] == "too_many_connections"
        asyncio.run(local_home.write(settings.home, sandbox_id, "/workspace/go"))
        for sock in working:
            answer = b""
            while b"done" not in answer:
                more = sock.recv(65536)
                assert more, answer
                answer += more
            assert answer.startswith(b"HTTP/1.1 200")


def test_one_address_has_only_so_many_unless_it_is_a_proxys(settings: Settings) -> None:
    own = changed(settings, max_connections_per_address=5, trusted_proxies=("127.0.0.1/32",))
    with running(own) as server, ExitStack() as stack:

        def come(source: str) -> socket.socket:
            sock = stack.enter_context(dial(server, source))
            assert ask(sock, "/health").startswith(b"HTTP/1.1 200")
            return sock

        theirs = [come("127.0.0.2") for _ in range(8)]
        for sock in theirs[:3]:
            until_closed(sock)
        kept = [*theirs[3:], come("127.0.0.3"), *(come("127.0.0.1") for _ in range(8))]
        for sock in kept:
            assert ask(sock, "/health").startswith(b"HTTP/1.1 200")


def test_by_default_one_address_takes_no_more_than_a_quarter_of_the_places(settings: Settings) -> None:
    own = changed(settings, max_connections=32, trusted_proxies=("127.0.0.1/32",))
    with running(own) as server, ExitStack() as stack:

        def come(source: str) -> socket.socket:
            sock = stack.enter_context(dial(server, source))
            assert ask(sock, "/health").startswith(b"HTTP/1.1 200")
            return sock

        neighbour = come("127.0.0.3")
        crowd = [come("127.0.0.2") for _ in range(20)]
        assert [is_open(sock) for sock in crowd] == [False] * 12 + [True] * 8
        assert is_open(neighbour)


@pytest.mark.parametrize(
    ("addresses", "are_one"),
    [
        (("2a00:1450:1:2::1", "2a00:1450:1:2:ffff::1"), True),
        (("2a00:1450:1:2::1", "2a00:1450:1:3::1"), False),
        (("fd00::1", "fd00::2"), False),
        (("192.0.2.1", "::ffff:192.0.2.1"), True),
        (("192.0.2.1", "192.0.2.2"), False),
        (("fe80::1%eth0", "fe80::1%eth1"), False),
    ],
)
def test_a_network_that_one_customer_is_given_counts_as_one_address(addresses: tuple[str, str], are_one: bool) -> None:
    connections = Connections(ConnectionLimits(in_all=8, unproven=8, per_address=1, descriptors=100))
    first, _ = (connections.admit(address) for address in addresses)
    assert first is not None
    assert first.ended == are_one


def test_a_body_that_does_not_come_is_given_up(settings: Settings) -> None:
    with running(changed(settings, stall_timeout=0.5)) as server, dial(server) as sock:
        sock.sendall(post(server, "/sandboxes/run-command", b"{" * 99)[:-50])
        with suppress(ConnectionResetError):
            until_closed(sock)


def socket_request(*headers: str) -> bytes:
    fixed = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    lines = ("GET /sandboxes/nobody/pty HTTP/1.1", "Host: paddock.test", *fixed, key, *headers)
    return "\r\n".join((*lines, "", "")).encode()


UNKNOWN_PORT = b"GET / HTTP/1.1\r\nHost: 3000-abcdefgh.localhost\r\nAccept: text/html\r\n\r\n"
HOLDS = {
    "empty lines": b"\r\n\r\n",
    "a socket with a body": socket_request("Content-Length: 1000"),
    "a socket that is refused": socket_request(),
    "answers that are not read": UNKNOWN_PORT * 5_000,
    "a body for a port that is not there": UNKNOWN_PORT[:-2] + b"Content-Length: 1000\r\n\r\n",
}


@pytest.mark.parametrize("held_by", HOLDS)
def test_nothing_that_a_stranger_sends_takes_a_place_for_good(settings: Settings, held_by: str) -> None:
    with running(changed(settings, max_connections=8)) as server, ExitStack() as stack:
        for _ in range(12):
            stranger = stack.enter_context(dial(server))
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.settimeout(0.5)
            with suppress(OSError):  # it may be sent away by now, or the server reads no more
                stranger.sendall(HOLDS[held_by])
            wait_until(lambda: not server.server.connections.silent)
        for _ in range(4):
            newcomer = stack.enter_context(dial(server))
            assert ask(newcomer, "/sandboxes", server.key).startswith(b"HTTP/1.1 200")


def test_one_member_cannot_take_all_places(settings: Settings) -> None:
    with running(changed(settings, max_connections=8)) as server, ExitStack() as stack:
        with httpx.Client(base_url=server.url, headers=server.headers) as client:
            made = client.post("/keys", json={"name": "mallory", "user_id": "mallory"}).raise_for_status().json()
        request = post(server, "/sandboxes/create", b" " * 99)[:-50].replace(server.key.encode(), made["key"].encode())
        working = server.server.connections.working
        for number in range(4):
            stack.enter_context(dial(server)).sendall(request)
            wait_until(lambda at_work=number + 1: working["mallory"] == at_work)
        for _ in range(4):
            refused = stack.enter_context(dial(server))
            refused.sendall(request)
            assert refused.recv(4096).startswith(b"HTTP/1.1 429")
        newcomer = stack.enter_context(dial(server))
        assert ask(newcomer, "/sandboxes", server.key).startswith(b"HTTP/1.1 200")


def test_many_who_come_at_once_hold_no_more_places(settings: Settings) -> None:
    """Nor do those that are let go of after they were accepted and before they are read."""
    with running(changed(settings, max_connections=8, stall_timeout=2 * PATIENCE_S)) as server, ExitStack() as stack:
        with httpx.Client(base_url=server.url, headers=server.headers) as client:
            made = client.post("/keys", json={"name": "mallory", "user_id": "mallory"}).raise_for_status().json()
        request = post(server, "/sandboxes/create", b" " * 99)[:-50].replace(server.key.encode(), made["key"].encode())
        socks = []
        for _ in range(60):
            socks.append(stack.enter_context(dial(server)))
            with suppress(ConnectionError):  # it may be sent away by now
                socks[-1].sendall(request)
        limit = server.server.connections.limits.per_user
        wait_until(lambda: len(socks) - len(select.select(socks, [], [], 0)[0]) <= limit)


def test_empty_lines_are_not_a_request(settings: Settings) -> None:
    with running(changed(settings, head_timeout=0.5)) as server:
        with dial(server) as sock:
            sock.sendall(b"\r\n\r\n")
            until_closed(sock)
        with dial(server) as sock:
            sock.sendall(b"\r\n\r\n")
            assert ask(sock, "/health").startswith(b"HTTP/1.1 200")
            sock.sendall(b"\r\n" * 3)
            until_closed(sock)


def test_answers_of_the_gateway_that_are_not_read_are_given_up(settings: Settings) -> None:
    with running(changed(settings, stall_timeout=0.5)) as server, dial(server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                sock.sendall(UNKNOWN_PORT * 1000)


def test_a_request_that_was_let_in_outlives_those_that_have_shown_nothing() -> None:
    connections = Connections(ConnectionLimits(in_all=4, unproven=4, per_address=4, descriptors=100))
    came = {name: connections.admit(name) for name in ("known", "visitor", "idle with a key", "stranger")}
    gone: list[str] = []
    for name, tracked in came.items():
        assert tracked is not None
        tracked.close = lambda name=name: gone.append(name)
        tracked.busy()
    came["known"].prove()
    came["visitor"].admit()
    came["idle with a key"].prove()
    came["idle with a key"].idle()
    for number in range(3):
        newcomer = connections.admit(f"newcomer {number}")
        assert (newcomer is not None) == (number < 2)
        if newcomer is not None:
            newcomer.busy()
            newcomer.prove()
    assert gone == ["idle with a key", "stranger"]


@contextmanager
def silent_crowd(port: int, count: int) -> Iterator[None]:
    """So many that connect and say nothing, from several addresses, and come again when they are sent away."""
    stop = threading.Event()

    def come_again() -> None:
        crowd: list[socket.socket] = []
        number = 0
        while not stop.is_set():
            sock = socket.socket()
            sock.setblocking(False)
            sock.bind((f"127.0.0.{1 + number % 8}", 0))
            sock.connect_ex(("127.0.0.1", port))
            crowd.append(sock)
            number += 1
            if len(crowd) >= count:
                crowd.pop(0).close()
            if number % 32 == 0:
                stop.wait(0.02)
        for sock in crowd:
            sock.close()

    thread = threading.Thread(target=come_again)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_thousands_of_silent_connections_keep_nobody_from_working(tmp_path: Path) -> None:
    """And never use up the descriptors that the server needs to make sandboxes."""
    descriptors = 1024
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = PaddockServer(tmp_path / "home", descriptors=descriptors)
    server.start()
    try:
        with SyncSandboxClient(server.url, api_key=server.key) as working:
            box = working.create_sandbox("alice")
            with silent_crowd(server.port, min(3000, most_files // 2)):
                used = []
                for _ in range(8):
                    with SyncSandboxClient(server.url, api_key=server.key) as newcomer:
                        other = newcomer.create_sandbox("alice")
                        assert newcomer.run_command(other.sandbox_id, "echo hello").stdout == "hello\n"
                        newcomer.delete_sandbox(other.sandbox_id)
                    assert working.run_command(box.sandbox_id, "echo still here").stdout == "still here\n"
                    used.append(len(list(Path(f"/proc/{server.pid}/fd").iterdir())))
            assert max(used) < descriptors * 3 // 4, used
            working.delete_sandbox(box.sandbox_id)
    finally:
        server.stop()
    assert "Too many open files" not in server.log.read_text(errors="replace")


def test_descriptors_of_the_servers_own_are_not_given_to_connections() -> None:
    limits = ConnectionLimits.derive(0, 0, descriptors=1024)
    assert limits.in_all * 3 <= limits.descriptors <= 1024 * 3 // 4
    connections = Connections(limits)
    first = connections.admit("192.0.2.1", descriptor=10)
    assert isinstance(first, TrackedConnection)
    closed: list[int] = []
    first.close = lambda: closed.append(1)
    assert connections.admit("192.0.2.2", descriptor=limits.descriptors) is None
    assert closed, "the oldest silent one makes room for whoever comes next"
    assert len(connections) == 0
