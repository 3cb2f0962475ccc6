"""Two machines on one PostgreSQL behind a load balancer that knows nothing: any server is asked for any sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from e2b import Sandbox as E2BSandbox
from websockets.sync.client import connect

from paddock.client import SyncSandboxClient
from paddock.errors import ProviderUnavailable, SandboxElsewhere
from tests.e2b.server import PaddockServer, delete_all
from tests.gateway.bed import INSIDE
from tests.support.postgres import Postgres
from tests.support.tls_front import TlsFront
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

_PORT = 3000
_GUARD = "X-Paddock-Forwarded"
_LARGE = bytes(range(256)) * (3 << 12)  # 3 MiB
_WAIT_FOR_PORT = f"""python3 - <<'END'
import socket, time
while True:
    try: socket.create_connection(('127.0.0.1', {_PORT})).close(); break
    except OSError: time.sleep(0.02)
END"""


class Pair:
    """``there`` has the sandbox, ``here`` is asked for it."""

    def __init__(self, there: PaddockServer, here: PaddockServer, tls: TlsFront) -> None:
        self.there, self.here, self.tls = there, here, tls
        self.client = SyncSandboxClient(here.url, api_key=there.key, retries=0)
        self.http = httpx.Client(base_url=here.url, headers={"X-API-Key": there.key}, timeout=PATIENCE_S)
        made = SyncSandboxClient(there.url, api_key=there.key).create_sandbox("alice")
        self.sandbox_id, self.key = made.sandbox_id, made.key

    def run(self, command: str, **options: Any) -> str:
        return str(self.client.run_command(self.sandbox_id, command, **options).stdout)

    def visitor(self, port: int = _PORT, **headers: str) -> httpx.Client:
        host = f"{port}-{self.key}.localhost:{self.here.port}"
        return httpx.Client(base_url=self.here.url, headers={"Host": host, **headers}, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def pair(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = {
        "DATABASE_URL": asyncio.run(postgres.new_database()),
        "PADDOCK_SERVER_TTL": "10",
        "PADDOCK_RECONCILE_INTERVAL": "0.2",
        "PADDOCK_POOL_SIZE": "0",
        "PADDOCK_TRUSTED_PROXIES": "127.0.0.9",
    }
    home = tmp_path_factory.mktemp("pair")
    with TlsFront(home).running() as tls:
        there = PaddockServer(home / "there", published=True, SSL_CERT_FILE=str(tls.authority), **settings)
        here = PaddockServer(home / "here", PADDOCK_INTERNAL_URL=tls.url, **settings)
        tls.target = here.port
        there.start()
        here.start()
        try:
            yield Pair(there, here, tls)
            delete_all(there)
        finally:
            here.stop()
            there.stop()


@pytest.fixture(scope="module")
def served(pair: Pair) -> Pair:
    """With the gateway tests' server in the sandbox."""
    pair.client.write_file(pair.sandbox_id, "inside.py", INSIDE)
    pair.run(f"python3 inside.py {_PORT}", background=True)
    pair.run(_WAIT_FOR_PORT)
    return pair


def test_commands_files_and_streams(pair: Pair) -> None:
    assert pair.run("cat /proc/sys/kernel/hostname; echo here").endswith("here\n")
    streamed = {"sandbox_id": pair.sandbox_id, "command": "echo one; sleep 0.1; echo two >&2", "stream": True}
    with pair.http.stream("POST", "/sandboxes/run-command", json=streamed) as answer:
        events = [line.partition(": ")[2] for line in answer.iter_lines() if line.startswith("event")]
    assert (events[0], events[-1], events.count("output")) == ("started", "exit", 2)

    url = f"/sandboxes/{pair.sandbox_id}/files"
    put = pair.http.put(url, params={"path": "/workspace/large"}, content=_LARGE)
    assert put.is_success, put.text
    pieces = (_LARGE[at : at + 100_000] for at in range(0, len(_LARGE), 100_000))
    assert pair.http.put(url, params={"path": "/workspace/chunks"}, content=pieces).is_success
    digest = hashlib.sha256(_LARGE).hexdigest()
    assert pair.run("sha256sum large chunks").split()[::2] == [digest, digest]
    assert pair.http.get(url, params={"path": "/workspace/large"}).content == _LARGE
    # A body that the first server has read whole before it knew whose it is.
    text = "x" * (2 << 20)
    pair.client.write_file(pair.sandbox_id, "text", text)
    assert pair.client.read_file(pair.sandbox_id, "text") == text


def test_a_terminal(pair: Pair) -> None:
    url = f"ws://127.0.0.1:{pair.here.port}/sandboxes/{pair.sandbox_id}/terminal"
    with connect(url, additional_headers={"X-API-Key": pair.there.key}) as terminal:
        terminal.send(b"stty -echo; echo $((6 * 7)); exit\n")
        seen = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in terminal)
    assert b"42" in seen
    ticket = pair.http.post(f"/sandboxes/{pair.sandbox_id}/tickets", json={}).raise_for_status().json()["ticket"]
    with connect(f"{url}?ticket={ticket}&command=echo+by-ticket") as terminal:
        seen = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in terminal)
    assert b"by-ticket" in seen


def test_previews_in_both_forms(served: Pair) -> None:
    owner = {"X-API-Key": served.there.key}
    path = f"/p/{served.key}/{_PORT}"
    with served.visitor() as visitor:
        assert visitor.get("/seen").status_code == 403
        link = served.client.expose_port(served.sandbox_id, _PORT).partition("?")[2]
        answer = visitor.get(f"/seen?{link}", headers={"Accept": "text/html"})
        assert answer.status_code == 302, answer.text
        visitor.cookies.clear()
        cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
        assert visitor.get("/seen", headers=cookie).is_success
        assert visitor.get("/long?5000000", headers=owner).headers["content-length"] == "5000000"
    assert served.http.post(f"{path}/seen", content=_LARGE).json()["sha256"] == hashlib.sha256(_LARGE).hexdigest()
    with served.http.stream("GET", f"{path}/events") as events:
        lines = events.iter_lines()
        assert next(lines)
        assert served.http.get(f"{path}/next").is_success
        assert "data" in "".join(next(lines) for _ in range(3))
    host = f"{_PORT}-{served.key}.localhost"
    for url in (f"ws://{host}:{served.here.port}/ws", f"{served.here.url.replace('http', 'ws')}{path}/ws"):
        with connect(url, additional_headers=owner, sock=_socket(served)) as web_socket:
            web_socket.send("hello")
            assert web_socket.recv() == "hello"


def _socket(pair: Pair) -> socket.socket:
    return socket.create_connection(("127.0.0.1", pair.here.port))


def test_who_asks_is_told_by_servers_alone(served: Pair) -> None:
    claims = {"X-API-Key": served.there.key, "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https"}
    path = f"/p/{served.key}/{_PORT}/seen"

    def told(url: str, **more: str) -> dict[str, str]:
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.7"), headers=claims | more) as client:
            return {name.lower(): value for name, value in client.get(url + path).json()["headers"]}

    assert told(served.here.url)["x-forwarded-for"] == "127.0.0.7, 127.0.0.1"
    forged = told(served.there.url, **{_GUARD: f"{int(time.time()) + 60}.{'0' * 64}"})
    assert (forged["x-forwarded-for"], forged["x-forwarded-proto"]) == ("127.0.0.7", "http")
    assert _GUARD.lower() not in forged
    with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.9"), headers=claims) as behind:
        seen = {name.lower(): value for name, value in behind.get(served.here.url + path).json()["headers"]}
    assert (seen["x-forwarded-for"], seen["x-forwarded-proto"]) == ("6.6.6.6, 127.0.0.9, 127.0.0.1", "https")


def test_what_was_passed_on_is_not_passed_on_again(served: Pair) -> None:
    guard = {_GUARD: "anything"}
    command = {"sandbox_id": served.sandbox_id, "command": "true"}
    refused = [
        served.http.post("/sandboxes/run-command", json=command, headers=guard),
        served.http.get(f"/sandboxes/{served.sandbox_id}/processes", headers=guard),
        served.http.put(f"/sandboxes/{served.sandbox_id}/files?path=/tmp/x", content=_LARGE, headers=guard),
    ]
    for answer in refused:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["details"]["url"]) == (
            421,
            "sandbox_elsewhere",
            served.there.url,
        )
    assert served.http.get(f"/p/{served.key}/{_PORT}/seen", headers=guard).status_code == 503
    # Nobody but the table says where a request goes.
    assert served.http.get("/sandboxes/nobody_00000000/processes").status_code == 404
    assert served.http.get(f"/sandboxes/{served.sandbox_id}/processes", headers={"X-API-Key": "no"}).status_code == 401


def test_a_client_that_leaves_ends_the_request(served: Pair) -> None:
    path = f"/p/{served.key}/{_PORT}"
    with pytest.raises(httpx.ReadTimeout):
        served.http.get(f"{path}/wait", timeout=0.5)
    wait_until(lambda: served.http.get(f"{path}/left").json() != [])


def test_mcp_and_the_facades(pair: Pair) -> None:
    call = {"tool": "run_command", "args": {"cmd": "echo by mcp"}}
    answer = pair.http.post(f"/p/{pair.key}/6060/mcp/", json=call)
    assert "by mcp" in answer.raise_for_status().text

    sandbox = E2BSandbox.connect(
        pair.key, api_key=pair.there.key, api_url=f"{pair.here.url}/e2b", sandbox_url=pair.here.url
    )
    assert sandbox.commands.run("echo by e2b").stdout == "by e2b\n"
    sandbox.files.write("/home/user/e2b.txt", "over there")
    assert sandbox.files.read("/home/user/e2b.txt") == "over there"
    signed = sandbox.download_url("/home/user/e2b.txt", use_signature_expiration=600)
    assert httpx.get(signed).text == "over there"
    upload = sandbox.upload_url("/home/user/up.txt", use_signature_expiration=600)
    assert httpx.post(upload, files={"file": ("up.txt", _LARGE)}).is_success
    assert sandbox.files.read("/home/user/up.txt", format="bytes") == _LARGE

    toolbox = f"/daytona/toolbox/{pair.key}"
    done = pair.http.post(f"{toolbox}/process/execute", json={"command": "echo by daytona"})
    assert done.raise_for_status().json()["result"] == "by daytona\n"


def test_metrics_of_several_are_gathered(pair: Pair) -> None:
    made = pair.client.create_sandbox("bob")
    keys = {pair.key, made.key}
    asked = {"sandbox_ids": ",".join((*keys, "i0"))}
    for server in (pair.here, pair.there):
        url = f"{server.url}/e2b/sandboxes/metrics"
        answer = httpx.get(url, params=asked, headers={"X-API-Key": pair.there.key}, timeout=PATIENCE_S)
        found = answer.raise_for_status().json()["sandboxes"]
        assert set(found) == keys and all(each["memUsed"] > 0 for each in found.values())
        passed_on = httpx.get(url, params=asked, headers={"X-API-Key": pair.there.key, _GUARD: "anything"})
        assert len(passed_on.json()["sandboxes"]) == 1, "nobody asks on behalf of a server"
    stranger = pair.http.post("/keys", json={"name": "stranger", "role": "member"}).raise_for_status().json()["key"]
    answer = pair.http.get("/e2b/sandboxes/metrics", params=asked, headers={"X-API-Key": stranger})
    assert answer.json() == {"sandboxes": {}}
    pair.client.delete_sandbox(made.sandbox_id)


def test_daytonas_listeners_hear_of_changes_by_either_server(pair: Pair) -> None:
    there = SyncSandboxClient(pair.there.url, api_key=pair.there.key)
    over_there, over_here = there.create_sandbox("bob"), pair.client.create_sandbox("bob")
    url = f"ws://127.0.0.1:{pair.here.port}/daytona/api/socket.io/?EIO=4&transport=websocket"
    heard: dict[str, list[str]] = {over_there.key: [], over_here.key: []}
    with connect(url) as listener:
        assert str(listener.recv()).startswith("0")
        listener.send("40" + json.dumps({"token": pair.there.key}))
        assert str(listener.recv()).startswith("40")

        def hear_until(key: str, state: str) -> None:
            while heard[key][-1:] != [state]:
                packet = str(listener.recv(PATIENCE_S))
                if packet.startswith("42"):
                    name, told = json.loads(packet[2:])
                    assert name == "sandbox.state.updated" and told["sandbox"]["state"] == told["newState"]
                    heard.setdefault(told["sandbox"]["id"], []).append(told["newState"])

        pair.client.pause_sandbox(over_here.sandbox_id)
        hear_until(over_here.key, "paused")
        there.pause_sandbox(over_there.sandbox_id)
        hear_until(over_there.key, "paused")
        there.connect_sandbox(over_there.sandbox_id)
        hear_until(over_there.key, "started")
        pair.client.delete_sandbox(over_here.sandbox_id)
        there.delete_sandbox(over_there.sandbox_id)
        hear_until(over_there.key, "destroyed")
        hear_until(over_here.key, "destroyed")
    assert heard[over_here.key] == ["pausing", "paused", "destroying", "destroyed"], "each once"
    assert set(heard) == {over_here.key, over_there.key}, "nothing that was so before"


def test_one_connection_for_sandboxes_of_both(pair: Pair) -> None:
    made = pair.client.create_sandbox("bob").sandbox_id
    for sandbox_id in (made, pair.sandbox_id, made, pair.sandbox_id):
        assert pair.http.get(f"/sandboxes/{sandbox_id}/processes").is_success
        command = {"sandbox_id": sandbox_id, "command": "true"}
        assert pair.http.post("/sandboxes/run-command", json=command).json()["exit_code"] == 0

    # The other way round by TLS: to a server that is not the one that it says to be, nothing is passed on.
    there = SyncSandboxClient(pair.there.url, api_key=pair.there.key, retries=0)
    wait_until(
        lambda: not _raises(ProviderUnavailable, lambda: there.run_command(made, "true"))
    )  # until it has heard of it
    text = "x" * (1 << 20)
    there.write_file(made, "text", text)
    assert there.read_file(made, "text") == text
    with there.terminal(made, "echo $((6 * 7))") as terminal:
        assert b"42" in b"".join(terminal)
    pair.tls.show(own=False)
    with pytest.raises(SandboxElsewhere, match=pair.tls.url):
        there.run_command(made, "true")
    pair.tls.show(own=True)
    there.delete_sandbox(made)  # whoever writes it down
    assert pair.client.get_status(made).status == "deleted"


def test_a_server_that_dies_and_comes_back(pair: Pair) -> None:
    outcome: list[Exception] = []

    def run() -> None:
        try:
            pair.client.run_command(pair.sandbox_id, "touch /tmp/begun; sleep 60")
        except ProviderUnavailable as error:
            outcome.append(error)

    asking = threading.Thread(target=run)
    asking.start()
    wait_until(lambda: pair.run("ls /tmp/begun 2>&1") == "/tmp/begun\n")
    pair.there.kill()
    asking.join(PATIENCE_S)
    assert "look before you ask again" in str(outcome[0])

    with pytest.raises(SandboxElsewhere, match=pair.there.url):
        pair.run("true")
    assert pair.client.get_status(pair.sandbox_id).status == "running"
    pair.there.start()
    wait_until(lambda: pair.http.get(f"/sandboxes/{pair.sandbox_id}/processes").is_success)
    assert pair.run("echo back") == "back\n"


def _raises(kind: type[Exception], act: Callable[[], object]) -> bool:
    try:
        act()
    except kind:
        return True
    return False
