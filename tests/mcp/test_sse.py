"""Servers that speak the older kind of HTTP, with an event stream: those of the SDK itself, relayed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from tests.e2b.server import PaddockServer, delete_all
from tests.mcp.world import OUTSIDE, Box, create
from tests.support.waiting import PATIENCE_S, wait_until


def _application() -> Any:
    server = MCPServer("older")

    @server.tool()
    async def add(first: int, second: int) -> int:
        """Add them."""
        return first + second

    @server.tool()
    async def authorization(ctx: Context) -> str:
        """As it was sent."""
        return str((ctx.headers or {}).get("authorization"))

    return server.sse_app(transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False))


@contextmanager
def serving(listener: socket.socket) -> Iterator[str]:
    """On the given socket, until left; its address."""
    config = uvicorn.Config(_application(), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        yield "http://{}:{}/sse".format(*listener.getsockname())
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def test_a_servers_tools_are_relayed_with_its_headers(new_box: Callable[..., Box]) -> None:
    box = new_box()
    with serving(socket.create_server((OUTSIDE, 0))) as url:
        box.put("older", type="sse", url=url, headers={"Authorization": "Bearer s"}).raise_for_status()
        assert box.wait_for("older", "ready")["type"] == "sse"
        assert {"mcp_older_add", "mcp_older_authorization"} <= set(box.tools())
        assert box.call("mcp_older_add", first=2, second=3)["data"] == {"result": 5}
        assert box.call("mcp_older_authorization")["text"] == "Bearer s"
        assert box.call("mcp_older_add", first="two", second=3)["failed"]
        with box.api() as api:
            api.delete(f"/{box.sandbox_id}/mcp-servers/older").raise_for_status()


def test_a_server_that_goes_away_is_taken_up_again_when_it_is_back(new_box: Callable[..., Box]) -> None:
    box = new_box()
    with serving(socket.create_server((OUTSIDE, 0))) as url:
        box.put("older", type="sse", url=url).raise_for_status()
        box.wait_for("older", "ready")
        port = int(url.rpartition(":")[2].partition("/")[0])
    box.wait_for("older", "failed")
    assert "mcp_older_add" in box.tools()
    with serving(socket.create_server((OUTSIDE, port))):
        wait_until(lambda: box.call("mcp_older_add", first=2, second=3)["data"])
        assert box.server_named("older")["status"] == "ready"


def test_the_hosts_loopback_is_out_of_reach(new_box: Callable[..., Box]) -> None:
    box = new_box()
    with serving(socket.create_server(("127.0.0.1", 0))) as url:
        box.put("older", type="sse", url=url).raise_for_status()
        assert box.wait_for("older", "failed")["reason"]


@pytest.fixture
def talkative(tmp_path: Path) -> Iterator[PaddockServer]:
    """One that writes down as much as it can."""
    server = PaddockServer(tmp_path / "home", PADDOCK_EGRESS_REACHABLE=f"{OUTSIDE}/32", PADDOCK_LOG_LEVEL="debug")
    server.start()
    try:
        yield server
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


def test_what_is_secret_in_an_address_is_neither_told_nor_logged(talkative: PaddockServer) -> None:
    box = create(talkative)
    with serving(socket.create_server((OUTSIDE, 0))) as url:
        elsewhere = url.replace("/sse", "/nothing")
        for name, type_, at in (("works", "sse", url), ("older", "sse", elsewhere), ("newer", "http", elsewhere)):
            box.put(name, type=type_, url=f"{at}?key=very-secret").raise_for_status()
        box.wait_for("works", "ready")
        told = [box.wait_for(name, "failed") for name in ("older", "newer")]
    told.append(box.wait_for("works", "failed"))
    assert "404" in told[0]["reason"]
    assert "very-secret" not in str(told)
    assert "very-secret" not in talkative.log.read_text()
