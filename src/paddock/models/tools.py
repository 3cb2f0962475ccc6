"""Tools on the wire: what there is, and calls of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from paddock.models.base import Answer, Request, Success


class ToolInfo(Answer):
    name: str = Field(examples=["read_file"])
    langchain_name: str = Field(description="Its name among LangChain's tools.", examples=["file_read"])
    title: str
    description: str
    kit: str = Field(description="The group it belongs to.", examples=["files"])
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    read_only: bool
    destructive: bool = Field(description="May overwrite or end something that cannot be had back.")
    idempotent: bool
    open_world: bool = Field(description="Reaches beyond the sandbox.")


class ToolList(Answer):
    tools: list[ToolInfo]


class CallTool(Request):
    arguments: dict[str, Any] = Field(default_factory=dict, description="As its `input_schema` says.")


class ToolPicture(Answer):
    media_type: str = Field(examples=["image/png"])
    data: str = Field(description="In base64.")


class ToolResult(Success):
    sandbox_id: str
    tool: str
    failed: bool = Field(description="The tool could not do it: `text` says why, and what to try next.")
    text: str = Field(description="What a model should read.")
    data: dict[str, Any] | None = Field(description="The same for programs, as `output_schema` says. Null when failed.")
    pictures: list[ToolPicture]
