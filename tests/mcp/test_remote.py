"""Servers that are reached over HTTP: under the sandbox's egress rules, with secrets that stay outside."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2b.server import PaddockServer, delete_all
from tests.mcp.world import OUTSIDE, Box, create
from tests.support.stalls import stalls
from tests.support.waiting import wait_until

TOOL = {"name": "whoami", "inputSchema": {"type": "object"}}
Headers = dict[str, str]
Said = Callable[[Any], tuple[Headers, bytes]]
"""The answer to a call with this id."""
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}


class Remote(ThreadingHTTPServer):
    """A server of the handshake era without sessions; it remembers what it was sent."""

    def __init__(self, address: str) -> None:
        self.asked: list[dict[str, str]] = []
        self.redirect: str | None = None
        self.tool: dict[str, Any] = TOOL
        self.said: Said | None = None
        super().__init__((address, 0), _Answering)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/mcp"


class _Answering(BaseHTTPRequestHandler):
    server: Remote

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(dict(self.headers))
        if self.server.redirect is not None:
            self.send_response(307)
            self.send_header("Location", self.server.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if "id" not in message:
            self._send(202, None)
            return
        if message["method"] == "tools/call" and self.server.said is not None:
            headers, body = self.server.said(message["id"])
            self._write(200, headers, body)
            return
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            },
            "tools/list": {"tools": [self.server.tool]},
            "tools/call": {"content": [{"type": "text", "text": self.headers.get("Authorization", "nobody")}]},
        }
        result = results.get(message["method"])
        answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        self._send(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

    def do_GET(self) -> None:
        self._send(405, None)

    def _send(self, status: int, document: Any) -> None:
        self._write(status, JSON, b"" if document is None else json.dumps(document).encode())

    def _write(self, status: int, headers: Headers, body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # nobody has to read it to its end
            self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Nothing."""


def listening(address: str) -> Iterator[Remote]:
    with Remote(address) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def outside() -> Iterator[Remote]:
    """Where sandboxes may go."""
    yield from listening(OUTSIDE)


@pytest.fixture
def forbidden() -> Iterator[Remote]:
    """On the host's own loopback."""
    yield from listening("127.0.0.1")


def test_a_remote_servers_tools_work_and_its_header_stays_on_the_server(
    new_box: Callable[..., Box], outside: Remote
) -> None:
    box = new_box()
    shown = box.put("remote", url=outside.url, headers={"Authorization": "Bearer very-secret"})
    assert "very-secret" not in shown.text
    assert "mcp_remote_whoami" in box.tools()
    assert box.call("mcp_remote_whoami")["text"] == "Bearer very-secret"
    assert "very-secret" not in box.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    with box.api() as api:
        report = api.get(f"/{box.sandbox_id}/egress").raise_for_status().json()
    assert OUTSIDE in {each["host"] for each in report["latest"]}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "sub.localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "127.0.0.1.",
        "LOCALHOST",
    ],
)
def test_the_hosts_own_loopback_is_out_of_reach_in_every_spelling(box: Box, forbidden: Remote, host: str) -> None:
    port = forbidden.server_address[1]
    box.put("evil", url=f"http://{host}:{port}/mcp").raise_for_status()
    reason = box.wait_for("evil", "failed")["reason"]
    assert reason and forbidden.asked == []
    with box.api() as api:
        api.delete(f"/{box.sandbox_id}/mcp-servers/evil").raise_for_status()


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "2852039166"])
def test_metadata_addresses_are_out_of_reach(box: Box, host: str) -> None:
    box.put("evil", url=f"http://{host}/mcp").raise_for_status()
    assert box.wait_for("evil", "failed")["reason"]
    with box.api() as api:
        api.delete(f"/{box.sandbox_id}/mcp-servers/evil").raise_for_status()


def test_a_redirect_does_not_lead_to_the_host(new_box: Callable[..., Box], outside: Remote, forbidden: Remote) -> None:
    outside.redirect = forbidden.url
    box = new_box()
    box.put("evil", url=outside.url, headers={"Authorization": "Bearer s"}).raise_for_status()
    box.wait_for("evil", "failed")
    assert outside.asked and forbidden.asked == []


def test_a_sandbox_without_egress_reaches_no_server(new_box: Callable[..., Box], outside: Remote) -> None:
    box = new_box(egress="none")
    box.put("remote", url=outside.url).raise_for_status()
    assert "no egress" in box.wait_for("remote", "failed")["reason"]
    assert outside.asked == []


def test_the_deny_list_holds_for_servers_too(new_box: Callable[..., Box], outside: Remote) -> None:
    box = new_box(egress={"mode": "proxy", "deny": [OUTSIDE]})
    box.put("remote", url=outside.url).raise_for_status()
    assert "denied" in box.wait_for("remote", "failed")["reason"]
    assert outside.asked == []


# What such a server may say at once

MAX_STALL_SECONDS = 0.1
"""That the loop may compute in one go, by the clock of its own thread."""
LARGE = 9 << 20


def result(name: Any, **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": name, "result": {"content": [], **fields}}).encode()


def text(name: Any, size: int) -> bytes:
    return result(name, content=[{"type": "text", "text": "x" * size}])


def blocks(name: Any, count: int) -> bytes:
    return result(name, content=[{"type": "text", "text": ""}] * count)


def event(data: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % data


TOO_MUCH: dict[str, tuple[Said, str]] = {
    "gzip": (lambda name: ({**JSON, "Content-Encoding": "gzip"}, gzip.compress(blocks(name, 600_000))), "gzip"),
    "bytes": (lambda name: (JSON, text(name, LARGE)), "larger than"),
    "values": (lambda name: (JSON, blocks(name, 50_000)), "more than 50000 values"),
    "event of many bytes": (lambda name: (EVENTS, event(text(name, LARGE))), "larger than"),
    "event without end": (lambda name: (EVENTS, b"data: " + text(name, LARGE)), "larger than"),
    "event of many lines": (lambda name: (EVENTS, b"data:\n" * 1_000_000 + b"\n"), "larger than"),
    "event of many values": (lambda name: (EVENTS, event(blocks(name, 50_000))), "more than 50000 values"),
    "values behind a quote": (
        lambda name: (EVENTS, b': "\rid: "\rdata:' + blocks(name, 50_000) + b"\r\r"),
        "more than 50000 values",
    ),
    "another charset": (
        lambda name: (
            {"Content-Type": "text/event-stream; charset=utf-16"},
            event(blocks(name, 50_000)).decode().encode("utf-16"),
        ),
        "ended",
    ),
}


@pytest.fixture
def answering(paddock: PaddockServer, new_box: Callable[..., Box], outside: Remote) -> Iterator[tuple[Box, Remote]]:
    """A sandbox with a remote server; whatever that says, the loop is free."""
    box = new_box()
    before = len(stalls(paddock.log))
    yield box, outside
    assert [each for each in stalls(paddock.log)[before:] if each["cpu_seconds"] > MAX_STALL_SECONDS] == []


@pytest.mark.parametrize("what", TOO_MUCH)
def test_an_answer_that_is_too_large_is_an_error(answering: tuple[Box, Remote], what: str) -> None:
    box, remote = answering
    said, why = TOO_MUCH[what]
    box.put("remote", url=remote.url).raise_for_status()
    box.wait_for("remote", "ready")
    remote.said = said
    answer = box.call("mcp_remote_whoami")
    assert answer["failed"] and why in answer["text"], answer["text"][:1000]
    remote.said = None
    wait_until(lambda: box.call("mcp_remote_whoami")["text"] == "nobody" or None)
    assert {each.get("Accept-Encoding") for each in remote.asked} == {"identity"}


@pytest.mark.parametrize("kind", ["json", "event", "event in lines"])
def test_a_large_answer_within_the_limits_is_passed_on(answering: tuple[Box, Remote], kind: str) -> None:
    box, remote = answering
    box.put("remote", url=remote.url, headers={"accept-encoding": "gzip"}).raise_for_status()
    box.wait_for("remote", "ready")
    answers: dict[str, Said] = {
        "json": lambda name: ({"Content-Type": "Application/JSON; charset=utf-8"}, text(name, 7 << 20)),
        "event": lambda name: (EVENTS, b": hello\n\nid: 7\n\n" + event(text(name, 7 << 20))),
        "event in lines": lambda name: (
            EVENTS,
            b"data: "
            + json.dumps(json.loads(text(name, 7 << 20)), indent=1).encode().replace(b"\n", b"\r\ndata: ")
            + b"\r\n\r\n",
        ),
    }
    remote.said = answers[kind]
    answer = box.call("mcp_remote_whoami")
    assert (answer["failed"], answer["text"] == "x" * (7 << 20)) == (False, True), answer["text"][:1000]
    assert {each.get("Accept-Encoding") for each in remote.asked} == {"identity"}


def test_much_structured_content_is_left_out(answering: tuple[Box, Remote]) -> None:
    box, remote = answering
    box.put("remote", url=remote.url).raise_for_status()
    box.wait_for("remote", "ready")
    remote.said = lambda name: (JSON, result(name, structuredContent={"numbers": list(range(30_000))}))
    answer = box.call("mcp_remote_whoami")
    assert answer["data"] is None and "left out" in answer["text"]
    remote.said = lambda name: (JSON, result(name, structuredContent={"numbers": list(range(1000))}))
    assert box.call("mcp_remote_whoami")["data"] == {"numbers": list(range(1000))}


def test_a_servers_own_schema_is_not_tried_on_its_answers(answering: tuple[Box, Remote]) -> None:
    """Its pattern would take longer than there is time."""
    box, remote = answering
    pattern = {"type": "string", "pattern": "^(a+)+$"}
    remote.tool = {**TOOL, "outputSchema": {"type": "object", "properties": {"text": pattern}}}
    remote.said = lambda name: (JSON, result(name, structuredContent={"text": "a" * 60 + "!"}))
    box.put("remote", url=remote.url).raise_for_status()
    box.wait_for("remote", "ready")
    assert box.call("mcp_remote_whoami")["data"] == {"text": "a" * 60 + "!"}


def test_what_a_server_says_counts_as_bytes_of_its_user(tmp_path: Path, outside: Remote) -> None:
    limits = {"PADDOCK_USER_BYTES_IN_FLIGHT": str(4 << 20), "PADDOCK_POOL_SIZE": "0"}
    server = PaddockServer(tmp_path / "home", PADDOCK_EGRESS_REACHABLE=f"{OUTSIDE}/32", **limits)
    server.start()
    try:
        box = create(server)
        box.put("remote", url=outside.url).raise_for_status()
        box.wait_for("remote", "ready")
        outside.said = lambda name: (JSON, text(name, 2 << 20))
        assert "of this server's memory" in box.call("mcp_remote_whoami")["text"]
        outside.said = lambda name: (JSON, text(name, 1 << 19))
        for _ in range(10):
            assert len(box.call("mcp_remote_whoami")["text"]) == 1 << 19
        delete_all(server)
    finally:
        server.stop()
