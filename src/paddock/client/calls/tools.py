"""The tools of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.client.answers import ToolInfo, ToolResult
from paddock.client.call import ApiCall, answer, listed
from paddock.client.calls.sandboxes import SERVER_COMMAND_TIMEOUT, sandbox_path
from paddock.client.retry import Repeat


def list_tools(sandbox_id: str) -> ApiCall[list[ToolInfo]]:
    """The available tools: names, descriptions, schemas."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "tools"), read=listed(ToolInfo, "tools"))


def call_tool(
    sandbox_id: str, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
) -> ApiCall[ToolResult]:
    """Call one tool and wait for its end. A failing tool is an answer (see ``failed``). Never retried.

    ``timeout``: maximum seconds of the call, if that is more than a command may take.
    """
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tools", tool),
        json={"arguments": dict(arguments or {})},
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(ToolResult),
        repeat=Repeat.UNSENT,
    )
