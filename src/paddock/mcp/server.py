"""The SDK's low-level server over a desk. The one module here, with ``answers``, that the endpoint loads late."""

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
from paddock.mcp.client_options import ClientOptions
from paddock.mcp.endpoint import DESK
from paddock.mcp.relay.names import is_relayed
from paddock.mcp.tool_host import ToolHost
from paddock.tools import catalogue

INSTRUCTIONS = (
    "Tools that act in one sandbox: files, commands, code, a browser. Work happens in /workspace; relative paths begin "
    "there (`~` is the user's home). What is too long for an answer is kept in a file, whose path is given."
)
PROGRESS_SECONDS = 5.0

Context = ServerRequestContext[Any, Any]


def session_manager(max_body: int) -> StreamableHTTPSessionManager:
    """For HTTP: the desk is in the state of each request."""
    return StreamableHTTPSessionManager(
        serve(None),
        stateless=True,
        # Who may speak is decided by tokens, which a page of another site does not have.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=max_body,
    )


def serve(host: ToolHost | None, *, structured: bool = False) -> Server[Any]:
    """``desk``: where every request is served; None, where each brings its own. ``structured``: for clients over
    stdio, which have no address to say it in."""

    def at(ctx: Context) -> ToolHost:
        found: ToolHost = ctx.request.state._state[DESK] if host is None else host  # type: ignore[union-attr]
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
    """Against which the SDK checks arguments that travel as headers. Without this it lists all tools before each call;
    whether a tool of a user's server wants such headers is that server's business."""
    tool = catalogue.TOOLS.get(name)
    return None if tool is None else tool.input_schema


async def _call(
    ctx: Context, host: ToolHost, params: types.CallToolRequestParams, *, structured: bool
) -> types.CallToolResult:
    said = ProgressMessages(ctx)
    telling = asyncio.create_task(said.keep_telling())
    try:
        outcome = await host.call(params.name, params.arguments or {}, said.tell)
    except errors.ToolNotFound as problem:
        raise MCPError(types.INVALID_PARAMS, problem.message) from problem
    except errors.PaddockError as problem:  # what went wrong is for the model to read
        return answers.failed(problem.message)
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
    # Another's server may say more in its data than in its text; beside a picture it would hide the picture.
    data_too = structured or (is_relayed(params.name) and not outcome.pictures)
    return answers.result(outcome, structured=data_too)


class ProgressMessages:
    """Word for whoever waits: at once when a tool has something to say, and every few seconds that it still works, so
    that no client and no proxy on the way takes a long call for a dead one. A client that did not ask hears nothing."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._began = time.monotonic()
        self._step = 0
        self._last = "working"

    async def tell(self, message: str) -> None:
        self._step += 1
        self._last = message
        await self._ctx.session.report_progress(self._step, message=message)

    async def keep_telling(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self._step += 1
            seconds = time.monotonic() - self._began
            await self._ctx.session.report_progress(self._step, message=f"{self._last} ({seconds:.0f} s)")
