"""Tools and their outcomes in the words of MCP."""

from __future__ import annotations

import base64

import mcp_types as types

from paddock.tools.tool import Outcome, Tool


def described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema or None,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def result(outcome: Outcome) -> types.CallToolResult:
    content: list[types.ContentBlock] = []
    if outcome.text or not outcome.pictures:
        content.append(types.TextContent(text=outcome.text))
    content += [
        types.ImageContent(data=base64.b64encode(picture.data).decode(), mime_type=picture.media_type)
        for picture in outcome.pictures
    ]
    data = None if outcome.data is None else dict(outcome.data)
    return types.CallToolResult(content=content, structured_content=data, is_error=outcome.failed)


def failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
