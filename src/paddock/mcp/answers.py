"""Converts tools and their outcomes to MCP types.

Models get results as content. If a result has `structuredContent`, Codex shows a model no images, and Claude Code no
text, so it is sent only to clients that ask for it (see :mod:`paddock.mcp.tool_host`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import mcp_types as types

from paddock.mcp.schemas import compact, explain_once
from paddock.tools.tool import Tool, ToolOutcome


def described(tools: Iterable[Tool], *, structured: bool = False) -> list[types.Tool]:
    """``structured``: for programs, which read result schemas, and their users, who read titles."""
    listed = [
        types.Tool(
            name=tool.name,
            title=tool.title if structured else None,
            description=tool.description,
            input_schema=compact(tool.input_schema),
            output_schema=(tool.output_schema or None) if structured else None,
            annotations=types.ToolAnnotations(**hints) if (hints := _hints(tool)) else None,
        )
        for tool in tools
    ]
    explain_once(each.input_schema for each in listed)
    return listed


def result(outcome: ToolOutcome, *, structured: bool = False) -> types.CallToolResult:
    data = None if outcome.data is None else dict(outcome.data)
    text = outcome.text
    if not text and data is not None and not outcome.pictures:
        text = json.dumps(data, ensure_ascii=False)
    content: list[types.ContentBlock] = []
    if text or not outcome.pictures:
        content.append(types.TextContent(text=text))
    content += [
        types.ImageContent(data=base64.b64encode(picture.data).decode(), mime_type=picture.media_type)
        for picture in outcome.pictures
    ]
    return types.CallToolResult(
        content=content, structured_content=data if structured else None, is_error=outcome.failed
    )


def failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _hints(tool: Tool) -> dict[str, Any]:
    """Only hints that differ from the protocol's defaults."""
    hints: dict[str, Any] = {}
    if tool.read_only:
        hints["read_only_hint"] = True
    elif not tool.destructive:
        hints["destructive_hint"] = False
    if tool.idempotent and not tool.read_only:
        hints["idempotent_hint"] = True
    if not tool.open_world:
        hints["open_world_hint"] = False
    return hints
