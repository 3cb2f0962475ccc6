"""The SDK's low-level server on a tool host. With ``answers``, the only module here that the endpoint imports late."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError

from paddock import __version__, errors
from paddock.mcp import answers
from paddock.mcp.endpoint import TOOL_HOST
from paddock.mcp.relay.tools import is_relayed
from paddock.mcp.tool_host import ClientOptions, ToolHost
from paddock.tools import catalogue

INSTRUCTIONS = (
    "Tools that act in one sandbox: files, commands, code, a browser. Work happens in /workspace; relative paths begin "
    "there (`~` is the user's home). What is too long for an answer is kept in a file, whose path is given."
)
PROGRESS_SECONDS = 5.0

Context = ServerRequestContext[Any, Any]


def session_manager(max_body: int) -> StreamableHTTPSessionManager:
    """For HTTP: the tool host is in the state of each request."""
    return StreamableHTTPSessionManager(
        serve(None),
        stateless=True,
        # Access is decided by tokens, which pages of other sites do not have.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=max_body,
    )


def serve(host: ToolHost | None, *, structured: bool = False) -> Server[Any]:
    """``host``: serves all requests; None if each request brings its own. ``structured``: for stdio clients, which have
    no URL to set it in."""

    def at(ctx: Context) -> ToolHost:
        found: ToolHost = ctx.request.state._state[TOOL_HOST] if host is None else host  # type: ignore[union-attr]
        return found

    def asked(ctx: Context) -> ClientOptions:
        if ctx.request is None:
            return ClientOptions(at(ctx).usual, structured)
        return ClientOptions.of(ctx.request.url.query, at(ctx).usual)

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            wish = asked(ctx)
            tools = await at(ctx).tools(wish.selection)
        except errors.Invalid as problem:
            raise MCPError(types.INVALID_PARAMS, problem.message) from problem
        except errors.PaddockError as problem:
            raise MCPError(types.INTERNAL_ERROR, problem.message) from problem
        return types.ListToolsResult(tools=answers.described(tools, structured=wish.structured))

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            wish = asked(ctx)
        except errors.Invalid as problem:
            return answers.failed(problem.message)
        return await _call(ctx, at(ctx), params, structured=wish.structured)

    return Server(
        "paddock",
        version=__version__,
        title="Paddock sandbox",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=_input_schema,
    )


def _input_schema(name: str) -> dict[str, Any] | None:
    """Schema against which the SDK checks arguments sent as headers. Without it the SDK lists all tools before each
    call; relayed tools have none, since their servers check such headers themselves."""
    tool = catalogue.TOOLS.get(name)
    return None if tool is None else tool.input_schema


async def _call(
    ctx: Context, host: ToolHost, params: types.CallToolRequestParams, *, structured: bool
) -> types.CallToolResult:
    said = ProgressMessages(ctx)
    telling = asyncio.create_task(said.repeat())
    try:
        outcome = await host.call(params.name, params.arguments or {}, said.tell)
    except errors.ToolNotFound as problem:
        raise MCPError(types.INVALID_PARAMS, problem.message) from problem
    except errors.PaddockError as problem:  # the error is for the model to read
        return answers.failed(problem.message)
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
    # A relayed server's data may contain more than its text; but beside an image it would hide the image.
    data_too = structured or (is_relayed(params.name) and not outcome.pictures)
    return answers.result(outcome, structured=data_too)


class ProgressMessages:
    """Progress notifications: immediately when a tool reports something, and every few seconds while it works, so that
    neither clients nor proxies take a long call for dead. Sent only if the client asked for them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._began = time.monotonic()
        self._step = 0
        self._last = "working"

    async def tell(self, message: str) -> None:
        self._step += 1
        self._last = message
        await self._ctx.session.report_progress(self._step, message=message)

    async def repeat(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self._step += 1
            seconds = time.monotonic() - self._began
            await self._ctx.session.report_progress(self._step, message=f"{self._last} ({seconds:.0f} s)")
