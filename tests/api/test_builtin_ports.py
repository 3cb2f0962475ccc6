"""Which app a request is for, told apart before any route."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from paddock import errors
from paddock.api.builtin_ports import BuiltinPorts
from paddock.gateway.address import Destination

KEY = "i0123456789abcdefghij"


class Recorder:
    """An app that answers with its own name, and remembers what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = dict(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.name.encode()})


class Apps:
    def __init__(self) -> None:
        self.api, self.envd, self.mcp = Recorder("api"), Recorder("envd"), Recorder("mcp")
        self._door = BuiltinPorts(self.api, envd=self.envd, mcp=self.mcp, mcp_port=6060)

    async def get(self, path: str, host: str = "localhost", **headers: str) -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._door), base_url="http://x") as client:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await client.get(path, headers={"Host": host, **given})).text


@pytest.fixture
def apps() -> Apps:
    return Apps()


async def test_what_names_no_port_is_for_the_api(apps: Apps) -> None:
    assert await apps.get("/health") == "api"
    assert await apps.get("/files") == "api"
    assert "destination" not in apps.api.scope.get("state", {})


async def test_envd_is_reached_by_host_header_and_path(apps: Apps) -> None:
    assert await apps.get("/files?path=a", f"49983-{KEY}.example.org") == "envd"
    assert apps.envd.scope["state"]["destination"] == Destination(KEY, 49983)
    assert await apps.get("/files", e2b_sandbox_id=KEY, e2b_sandbox_port="49983") == "envd"
    assert await apps.get(f"/p/{KEY}/49983/files%20x") == "envd"
    assert (apps.envd.scope["path"], apps.envd.scope["raw_path"]) == ("/files x", b"/files%20x")
    assert apps.envd.scope["root_path"] == f"/p/{KEY}/49983"


async def test_a_signed_url_names_no_sandbox_and_is_for_envd(apps: Apps) -> None:
    assert await apps.get("/files?path=a&signature=v1_x") == "envd"
    assert "destination" not in apps.envd.scope.get("state", {})


async def test_other_ports_need_the_front_door(apps: Apps) -> None:
    with pytest.raises(errors.Unsupported):
        await apps.get("/", f"3000-{KEY}.localhost")
    with pytest.raises(errors.MalformedRequest):
        await apps.get("/", e2b_sandbox_id=KEY)
