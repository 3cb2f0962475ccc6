"""A server that tests may kill, its sandboxes, and clients of the newest SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2b.server import PaddockServer
from tests.support.waiting import PATIENCE_S, wait_until

OUTSIDE = "127.0.0.9"
"""An address of this host that sandboxes are let through to, unlike all its others."""
PLAIN = (Path(__file__).parent / "servers" / "plain.py").read_text()
T = TypeVar("T")
ERAS = ("legacy", "auto")


@dataclass(frozen=True, slots=True)
class Box:
    server: PaddockServer
    sandbox_id: str
    key: str
    mcp_url: str
    mcp_token: str

    @property
    def program_url(self) -> str:
        """Where every tool is listed, and answers have data for programs."""
        return f"{self.mcp_url}?tools=full&structured=true"

    def api(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.server.url}/sandboxes", headers={"X-API-Key": self.server.key}, timeout=PATIENCE_S
        )

    def run(self, command: str) -> str:
        with self.api() as api:
            body = {"sandbox_id": self.sandbox_id, "command": command, "timeout": 60}
            return str(api.post("/run-command", json=body).raise_for_status().json()["output"])

    def write(self, path: str, content: str) -> None:
        with self.api() as api:
            body = {"sandbox_id": self.sandbox_id, "path": path, "content": content}
            api.post("/write-file", json=body).raise_for_status()

    def status(self) -> str:
        with self.api() as api:
            return str(api.get(f"/{self.sandbox_id}/status").raise_for_status().json()["status"])

    def pause(self) -> None:
        with self.api() as api:
            api.post("/pause", json={"sandbox_id": self.sandbox_id}).raise_for_status()

    def tools(self) -> list[str]:
        with self.api() as api:
            return [tool["name"] for tool in api.get(f"/{self.sandbox_id}/tools").raise_for_status().json()["tools"]]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        with self.api() as api:
            answer = api.post(f"/{self.sandbox_id}/tools/{tool}", json={"arguments": arguments})
            return dict(answer.raise_for_status().json())

    def put(self, name: str, **definition: Any) -> httpx.Response:
        with self.api() as api:
            return api.put(f"/{self.sandbox_id}/mcp-servers/{name}", json=definition)

    def plain(self, name: str, *habits: str, **more: Any) -> None:
        """One of our own servers, run in the sandbox."""
        self.write("/workspace/plain.py", PLAIN)
        self.put(name, command="python3", args=["/workspace/plain.py", *habits], **more).raise_for_status()

    def server_named(self, name: str) -> dict[str, Any]:
        with self.api() as api:
            return dict(api.get(f"/{self.sandbox_id}/mcp-servers/{name}").raise_for_status().json())

    def wait_for(self, name: str, status: str) -> dict[str, Any]:
        return wait_until(lambda: found if (found := self.server_named(name))["status"] == status else None)

    def delete(self) -> None:
        with self.api() as api:
            api.delete(f"/{self.sandbox_id}").raise_for_status()

    @asynccontextmanager
    async def client(
        self, mode: str = "auto", token: str | None = None, url: str | None = None
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or self.mcp_token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
            transport = streamable_http_client(url or self.mcp_url, http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client


def create(server: PaddockServer, **fields: Any) -> Box:
    with httpx.Client(base_url=server.url, headers={"X-API-Key": server.key}, timeout=PATIENCE_S) as api:
        made = api.post("/sandboxes/create", json={"user_id": "alice", **fields}).raise_for_status().json()
    return Box(server, made["sandbox_id"], made["key"], made["mcp_url"], made["mcp_token"])
