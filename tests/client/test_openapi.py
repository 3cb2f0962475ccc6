"""Every call goes to a route that the server has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from paddock.api.app import create_app
from paddock.client.call import ApiCall, ApiOperation, StreamCall, StreamOperation
from paddock.client.operations import Operations
from paddock.settings import Settings

BOX, PROCESS = "alice_1f2e3d4c", "p_0123456789abcdef"
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "create_sandbox": ("alice",),
    "schedule_timeout": (BOX, 60),
    "list_sandboxes": (),
    "expose_port": (BOX, 3000),
    "get_port_urls": (BOX, 3000),
    "get_usage": (),
    "health": (),
    "list_templates": (),
    "run_command": (BOX, "true"),
    "stream_command": (BOX, "true"),
    "start_process": (BOX, "true"),
    "get_process": (BOX, PROCESS),
    "read_output": (BOX, PROCESS),
    "write_stdin": (BOX, PROCESS),
    "send_signal": (BOX, PROCESS),
    "wait_process": (BOX, PROCESS),
    "stream_process": (BOX, PROCESS),
    "run_code": (BOX, "1"),
    "stream_code": (BOX, "1"),
    "restart_code_context": (BOX, "5c1d7a52"),
    "delete_code_context": (BOX, "5c1d7a52"),
    "call_tool": (BOX, "read_file"),
    "put_mcp_server": (BOX, "time", {"command": "true"}),
    "put_mcp_servers": (BOX, {"mcpServers": {}}),
    "get_mcp_server": (BOX, "time"),
    "delete_mcp_server": (BOX, "time"),
    "create_link": (BOX, 3000),
    "put_service": (BOX, "web", 3000, "true"),
    "get_service": (BOX, "web"),
    "delete_service": (BOX, "web"),
    "write_file": (BOX, "/a", ""),
    "upload": (BOX, "/a", b""),
    "read_file": (BOX, "/a"),
    "read_bytes": (BOX, "/a"),
    "download": (BOX, "/a"),
    "stat_file": (BOX, "/a"),
    "move_file": (BOX, "/a", "/b"),
    "make_directory": (BOX, "/a"),
    "delete_file": (BOX, "/a"),
    "create_key": ("laptop",),
    "list_keys": (),
    "revoke_key": (1,),
    "me": (),
    "create_user": ("bob",),
    "list_users": (),
    "get_user": ("bob",),
    "change_user": ("bob",),
    "list_addons": (),
    "get_addon": ("browser",),
    "install_addon": ("browser",),
    "stream_install_addon": ("browser",),
    "remove_addon": ("browser",),
}
"""Where there are others than the sandbox's id alone."""


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    home: Path = tmp_path_factory.mktemp("home")
    paths = create_app(Settings(PADDOCK_HOME=home, SANDBOX_PROVIDER="local", _env_file=None)).openapi()["paths"]
    return {path: {method.upper() for method in methods} for path, methods in paths.items()}


@pytest.mark.parametrize(
    "name", [name for name, found in vars(Operations).items() if isinstance(found, ApiOperation | StreamOperation)]
)
def test_the_call_has_a_route(name: str, routes: dict[str, set[str]]) -> None:
    made = vars(Operations)[name].build(*ARGUMENTS.get(name, (BOX,)))
    call: ApiCall[Any] = made.call if isinstance(made, StreamCall) else made
    fitting = [
        methods for path, methods in routes.items() if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), call.path)
    ]
    assert any(call.method in methods for methods in fitting), f"{call.method} {call.path}"
