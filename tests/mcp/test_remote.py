"""Servers that are reached over HTTP: under the sandbox's egress rules, with secrets that stay outside."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.mcp.world import OUTSIDE, Box

TOOL = {"name": "whoami", "inputSchema": {"type": "object"}}


class Remote(ThreadingHTTPServer):
    """A server of the handshake era without sessions; it remembers what it was sent."""

    def __init__(self, address: str) -> None:
        self.asked: list[dict[str, str]] = []
        self.redirect: str | None = None
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
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": self.headers.get("Authorization", "nobody")}]},
        }
        result = results.get(message["method"])
        answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        self._send(200, {"jsonrpc": "2.0", "id": message["id"], **answer})

    def do_GET(self) -> None:
        self._send(405, None)

    def _send(self, status: int, document: Any) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
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
