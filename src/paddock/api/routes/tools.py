"""The tool catalogue, and tool calls."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import Path, Request, Response

from paddock.api.auth import Calling
from paddock.api.disconnects import until_disconnect
from paddock.api.openapi import guarded_router
from paddock.api.params import SandboxIdHere
from paddock.models import CallTool, ToolInfo, ToolList, ToolPicture, ToolResult
from paddock.tools.tool import Tool

router = guarded_router("tools", "/sandboxes/{sandbox_id}/tools")

ToolHere = Annotated[str, Path(max_length=200, examples=["read_file"])]


@router.get("")
async def list_tools(sandbox_id: SandboxIdHere, caller: Calling) -> ToolList:
    """The tools of this sandbox, with the schemas of arguments and results. The same tools as over MCP."""
    tools = await caller.context.tools.list(caller.who, sandbox_id)
    return ToolList(tools=[_info(tool) for tool in tools])


@router.post("/{tool}", response_model=ToolResult)
async def call_tool(
    body: CallTool, request: Request, sandbox_id: SandboxIdHere, tool: ToolHere, caller: Calling
) -> Response:
    """Call one tool and answer when it has ended. A failing tool is an answer: see `failed`."""
    called = caller.context.tools.call(caller.who, sandbox_id, tool, body.arguments)
    outcome = await until_disconnect(request, called)
    result = ToolResult(
        sandbox_id=sandbox_id,
        tool=tool,
        failed=outcome.failed,
        text=outcome.text,
        data=None if outcome.data is None else dict(outcome.data),
        pictures=[
            ToolPicture(media_type=picture.media_type, data=base64.b64encode(picture.data).decode())
            for picture in outcome.pictures
        ],
    )
    return Response(result.model_dump_json(), media_type="application/json")


def _info(tool: Tool) -> ToolInfo:
    return ToolInfo(
        name=tool.name,
        langchain_name=tool.langchain_name,
        title=tool.title,
        description=tool.description,
        kit=tool.kit,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        read_only=tool.read_only,
        destructive=tool.destructive,
        idempotent=tool.idempotent,
        open_world=tool.open_world,
    )
