"""One connection to a user's server, whichever era of the protocol it speaks. Loaded late: it needs the SDK."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from paddock import __version__
from paddock.machine.base import Machine
from paddock.mcp.relay import remote, stdio
from paddock.mcp.relay.definitions import Definition
from paddock.mcp.relay.tools import LONGEST_DESCRIPTION, KnownTool
from paddock.models.mcp import McpTransport
from paddock.tools.bench import Progress
from paddock.tools.tool import Outcome, Picture

MOST_TOOLS = 500
LONGEST_SCHEMA = 64 * 1024
MAX_TOOLS_CHARACTERS = 512 * 1024
"""Of all tools of one server, as JSON: they are stored, and read again at each use."""
_LONGEST_NAME = 256
_PAGES = 50
_SESSION_LOST = "Session terminated"
"""What the SDK says when a server does not know its own session any more, because it was restarted."""
_REFUSALS = {
    401: "Give it the headers that it wants.",
    403: "Give it the headers that it wants.",
    404: "Look at its url, and whether it speaks this type.",
    405: "Look at its url, and whether it speaks this type.",
}


class Session:
    def __init__(self, client: Client, ended: asyncio.Event, changed: asyncio.Event) -> None:
        self._client = client
        self.ended = ended
        """Set when there is nobody at the other end any more."""
        self.changed = changed
        """Set when it has other tools than before."""

    async def tools(self) -> list[KnownTool]:
        found: list[types.Tool] = []
        cursor = None
        for _ in range(_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) >= MOST_TOOLS:
                break
        return _fitting(_known(tool) for tool in found[:MOST_TOOLS] if len(tool.name) <= _LONGEST_NAME)

    async def call(self, name: str, arguments: Mapping[str, Any], hear: Progress, seconds: float) -> Outcome:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            await hear(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))

        try:
            answer = await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=seconds, progress_callback=tell
            )
        except MCPError as problem:
            if problem.error.code == types.CONNECTION_CLOSED or problem.error.message == _SESSION_LOST:
                self.ended.set()
                raise Failed("it ended during the call, and is being restarted.") from problem
            return Outcome(problem.error.message, failed=True)
        except httpx2.HTTPError as problem:
            return Outcome(_why(problem, seconds), failed=True)
        except RuntimeError as problem:  # its structured content does not fit its own schema
            return Outcome(str(problem), failed=True)
        return _outcome(answer)


@asynccontextmanager
async def connect(
    name: str, definition: Definition, machine: Machine, dial: remote.Dial | None, start_seconds: float
) -> AsyncIterator[tuple[Session, Callable[[], str]]]:
    """A session, and what the server said last on its standard error. Raises when it is not there in time."""
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with AsyncExitStack() as stack:
        said: Callable[[], str] = str
        ended = asyncio.Event()
        transport: Any
        if definition.transport is McpTransport.STDIO:
            wire = stdio.StdioWire(machine, await stdio.start(machine, name, definition))
            transport, ended, said = wire.connect(), wire.ended, lambda: wire.last_words
        elif definition.transport is McpTransport.SSE:
            transport = _over_events(definition, dial, ended)
        else:
            transport = _over_http(definition, dial)
        client = Client(
            transport,
            message_handler=heard,
            client_info=types.Implementation(name="paddock", version=__version__),
            cache=None,
        )
        try:
            async with asyncio.timeout(start_seconds):
                await stack.enter_async_context(_until_ended(client, ended))
        except Exception as problem:
            raise Failed(_why(problem, start_seconds), said()) from problem
        yield Session(client, ended, changed), said


class Failed(Exception):
    """It could not be started or reached. ``said``: what it wrote to its standard error."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


@asynccontextmanager
async def _until_ended(client: Client, ended: asyncio.Event) -> AsyncIterator[None]:
    """The handshake, given up when the program ends instead of answering."""
    entering = asyncio.current_task()
    gone: list[bool] = []

    async def watch() -> None:
        await ended.wait()
        gone.append(True)
        assert entering is not None  # noqa: S101
        entering.cancel()

    watching = asyncio.create_task(watch())
    try:
        await client.__aenter__()
    except asyncio.CancelledError:
        if gone and entering is not None and entering.uncancel() == 0:
            raise Failed("It ended before it had answered.") from None
        raise
    finally:
        watching.cancel()
    try:
        yield
    finally:
        await client.__aexit__(None, None, None)


@asynccontextmanager
async def _over_http(definition: Definition, dial: remote.Dial | None) -> AsyncIterator[Any]:
    async with (
        remote.client(dial, definition.headers) as http,
        streamable_http_client(definition.url, http_client=http) as streams,
    ):
        yield streams


@asynccontextmanager
async def _over_events(
    definition: Definition, dial: remote.Dial | None, ended: asyncio.Event
) -> AsyncIterator[tuple[Any, Any]]:
    """The older kind: all that the server says comes in one stream, whose end is its own."""

    def guarded(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        return remote.client(dial, definition.headers)

    async with sse_client(definition.url, httpx_client_factory=guarded) as (said, sent):
        to_client, received = anyio.create_memory_object_stream[Any](16)

        async def pass_on() -> None:
            try:
                async with to_client:
                    async for message in said:
                        await to_client.send(message)
            finally:
                ended.set()

        passing = asyncio.create_task(pass_on(), name="mcp server's events")
        try:
            yield received, sent
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
            await received.aclose()


def _why(problem: BaseException, seconds: float) -> str:
    """The first plain words in what may be a group of groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, TimeoutError):
        return f"It did not answer within {seconds:g} s."
    if isinstance(problem, MCPError):
        return problem.error.message
    if isinstance(problem, httpx2.HTTPStatusError):
        status = problem.response.status_code  # its own words have the whole address in them, with what is secret there
        return f"It answered with HTTP {status}. {_REFUSALS.get(status, '')}".rstrip()
    return str(problem) or type(problem).__name__


def _known(tool: types.Tool) -> KnownTool:
    hints = tool.annotations or types.ToolAnnotations()
    schema = tool.output_schema
    if schema is not None and schema.get("type") != "object":
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    read_only = bool(hints.read_only_hint)
    return KnownTool(
        name=tool.name,
        title=(tool.title or hints.title or tool.name)[:_LONGEST_NAME],
        description=(tool.description or "")[:LONGEST_DESCRIPTION],
        input_schema=_capped(tool.input_schema) or {"type": "object"},
        output_schema=None if schema is None else _capped(schema),
        read_only=read_only,
        destructive=not read_only if hints.destructive_hint is None else hints.destructive_hint,
        idempotent=bool(hints.idempotent_hint),
    )


def _fitting(tools: Iterable[KnownTool]) -> list[KnownTool]:
    """The first ones, as many as there is room for."""
    found, left = [], MAX_TOOLS_CHARACTERS
    for tool in tools:
        left -= len(json.dumps(tool.stored()))
        if left < 0:
            break
        found.append(tool)
    return found


def _capped(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Without those that would drown everything else in a listing."""
    return schema if len(json.dumps(schema)) <= LONGEST_SCHEMA else None


def _outcome(answer: types.CallToolResult) -> Outcome:
    texts: list[str] = []
    pictures: list[Picture] = []
    for block in answer.content:
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent():
                pictures.append(Picture(base64.b64decode(block.data), block.mime_type))
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                texts.append(f"{resource.uri}:\n{resource.text}")
            case types.ResourceLink():
                texts.append(f"{block.name}: {block.uri}")
            case _:
                texts.append(f"[{block.type}, which cannot be shown here]")
    data = answer.structured_content
    if data is not None and not isinstance(data, dict):
        data = {"result": data}
    return Outcome("\n".join(texts), data, tuple(pictures), answer.is_error)
