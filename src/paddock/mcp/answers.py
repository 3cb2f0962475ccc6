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


_LEFT_OUT = {
    "additionalProperties", "examples", "exclusiveMinimum", "maximum", "maxItems", "maxLength", "minimum", "minItems",
    "minLength", "pattern",
}  # fmt: skip
_EXPLAINED_ONCE = {
    "clear", "command", "cwd", "glob", "limit", "model", "new_string", "offset", "old_string", "path", "prompt", "ref",
    "replace_all", "screenshot", "selector", "session_id", "shell", "task_id", "text", "timeout", "x", "y",
}  # fmt: skip
"""Arguments that many tools share with the same meaning."""
_EXPLAINED_AGAIN = {"The repository."}
"""Descriptions that are repeated, since the name alone would mislead: the `path` of git_add is not one of its files."""
_NAMED = {"properties", "$defs"}
"""Whose keys are names, not keywords of JSON Schema."""


def compact(schema: Any) -> Any:
    if isinstance(schema, list):
        return [compact(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _optional(schema)
    return {
        word: {name: compact(each) for name, each in value.items()} if word in _NAMED else compact(value)
        for word, value in schema.items()
        if not (word in _LEFT_OUT and not isinstance(value, dict)) and not (word == "default" and _implied(value))
    }


def explain_once(schemas: Iterable[Any]) -> None:
    """In place, for one list of tools: a description of a shared argument is kept only where it first appears."""
    said: set[tuple[str, str]] = set()
    for schema in schemas:
        for part in (schema, *schema.get("$defs", {}).values()):
            for name, field in part.get("properties", {}).items():
                if name in _EXPLAINED_ONCE and field.get("description", "") not in ("", *_EXPLAINED_AGAIN):
                    if (name, field["description"]) in said:
                        del field["description"]
                    else:
                        said.add((name, field["description"]))


def _implied(value: Any) -> bool:
    """Defaults that are obvious: off, nothing, or here."""
    return value in (None, False, 0, "", ".")


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Reduces `anyOf: [X, null]` with default null to X: the argument can be omitted."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if "default" in schema and schema["default"] is None and len(options) == 1:
        return {**{word: value for word, value in schema.items() if word != "anyOf"}, **options[0]}
    return schema
