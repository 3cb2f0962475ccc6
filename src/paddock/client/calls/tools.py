"""The tools of a sandbox, and calls of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import ToolInfo, ToolResult
from paddock.client.call import ApiCall, answer, listed
from paddock.client.calls.sandboxes import SERVER_COMMAND_TIMEOUT, sandbox_path
from paddock.client.retry import Repeat


def list_tools(sandbox_id: str) -> ApiCall[list[ToolInfo]]:
    """What an agent can do in this sandbox: names, descriptions, schemas."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "tools"), read=listed(ToolInfo, "tools"))


def call_tool(
    sandbox_id: str, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
) -> ApiCall[ToolResult]:
    """Call one tool and wait for its end. One that fails is an answer (see ``failed``). Never sent twice.

    ``timeout``: how many seconds the call may take, where that is longer than a command may.
    """
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tools", tool),
        json={"arguments": dict(arguments or {})},
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(ToolResult),
        repeat=Repeat.UNSENT,
    )
