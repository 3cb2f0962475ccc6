"""``{"tool": …, "args": {…}}``: a tool call as one JSON document, for programs without JSON-RPC.

Older sandbox servers accepted it at their MCP endpoint, so it is accepted there besides MCP.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from paddock import errors
from paddock.mcp.tool_host import ToolHost
from paddock.tools.context import unheard

_MARKER = b'"tool"'


@dataclass(frozen=True, slots=True)
class PlainCall:
    tool: str
    arguments: Mapping[str, Any]


def read_plain_call(body: bytes) -> PlainCall | None:
    """None for anything else: MCP reports its own errors."""
    if _MARKER not in body:  # MCP's own messages do not contain this name, and so are not parsed twice
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "jsonrpc" in document or "tool" not in document:
        return None
    tool, arguments = document["tool"], document.get("args", document.get("arguments"))
    if not isinstance(tool, str) or not isinstance(arguments, dict | None):
        raise errors.Invalid('A call is {"tool": "<name>", "args": {…}}.')
    return PlainCall(tool, arguments or {})


async def answer_plain_call(call: PlainCall, host: ToolHost) -> Response:
    outcome = await host.call(call.tool, call.arguments, unheard)
    pictures = [
        {"media_type": picture.media_type, "data": base64.b64encode(picture.data).decode()}
        for picture in outcome.pictures
    ]
    return JSONResponse(
        {
            "success": not outcome.failed,
            "tool": call.tool,
            "result": outcome.text,
            "data": None if outcome.data is None else dict(outcome.data),
            "pictures": pictures,
        }
    )
