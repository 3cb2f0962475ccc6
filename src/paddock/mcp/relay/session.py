"""One session with a user's server, of either generation of the protocol. Imported late, because it needs the SDK."""

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
from paddock.mcp.relay.tools import MAX_DESCRIPTION_LENGTH, KnownTool
from paddock.memory import Hold, unlimited
from paddock.models.mcp import McpTransport
from paddock.tools.context import Progress
from paddock.tools.tool import Picture, ToolOutcome

MAX_TOOLS = 500
MAX_SCHEMA_LENGTH = 64 * 1024
MAX_TOOLS_CHARACTERS = 512 * 1024
"""Of all tools of one server, as JSON: they are stored, and read at each use."""
_MAX_NAME_LENGTH = 256
_MAX_PAGES = 50
_MAX_NAMES = 1 << 20
"""Total characters of tool names listed in one session, which the SDK keeps. Above that a new session is started."""
_MAX_REASON_LENGTH = 2000
_MAX_DATA_VALUES = 20_000
_MAX_DATA_CHARACTERS = 1 << 20
_TOO_MUCH_DATA = (
    f"[its structured content has more than {_MAX_DATA_VALUES} values or {_MAX_DATA_CHARACTERS} characters, "
    "and is left out]"
)
_SESSION_LOST = "Session terminated"
"""The SDK's message if a server no longer knows its session, because it was restarted."""
_REFUSALS = {
    401: "Give it the headers that it wants.",
    403: "Give it the headers that it wants.",
    404: "Look at its url, and whether it speaks this type.",
    405: "Look at its url, and whether it speaks this type.",
}


class UpstreamSession:
    def __init__(self, client: Client, ended: asyncio.Event, changed: asyncio.Event) -> None:
        self._client = client
        self._names: set[str] = set()
        self._name_characters = 0
        self.ended = ended
        """Set when the connection is lost."""
        self.changed = changed
        """Set when the server reports changed tools."""

    async def tools(self) -> list[KnownTool]:
        found: list[KnownTool] = []
        cursor, left = None, MAX_TOOLS_CHARACTERS
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            fitting, left = _fitting(page.tools[: MAX_TOOLS - len(found)], left)
            found += fitting
            self._drop_schemas(page.tools)
            cursor = page.next_cursor
            if cursor is None or left < 0 or len(found) >= MAX_TOOLS:
                break
        return found

    def _drop_schemas(self, listed: Iterable[types.Tool]) -> None:
        """The SDK keeps names and output schemas of all tools ever listed; the schemas are not needed here."""
        for tool in listed:
            if tool.output_schema is not None:
                tool.output_schema.clear()
            if tool.name not in self._names:
                self._names.add(tool.name)
                self._name_characters += len(tool.name)
        if self._name_characters > _MAX_NAMES:
            self.ended.set()

    async def call(self, name: str, arguments: Mapping[str, Any], hear: Progress, seconds: float) -> ToolOutcome:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
            await hear(told[:_MAX_REASON_LENGTH])

        try:
            answer = await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=seconds, progress_callback=tell
            )
        except MCPError as problem:
            if problem.error.code == types.CONNECTION_CLOSED or problem.error.message == _SESSION_LOST:
                self.ended.set()
                raise UpstreamFailed("it ended during the call, and is being restarted.") from problem
            return ToolOutcome(problem.error.message, failed=True)
        except httpx2.HTTPError as problem:
            return ToolOutcome(_why(problem, seconds), failed=True)
        except RuntimeError as problem:  # the server requires input that cannot be given here
            return ToolOutcome(str(problem), failed=True)
        return _outcome(answer)


@asynccontextmanager
async def connect(
    name: str,
    definition: Definition,
    machine: Machine,
    dial: remote.Dial | None,
    start_seconds: float,
    hold: Hold = unlimited,
) -> AsyncIterator[tuple[UpstreamSession, Callable[[], str]]]:
    """A session, and a function that returns the server's latest standard error. Raises if it is not ready in time."""
    changed = asyncio.Event()

    async def heard(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with AsyncExitStack() as stack:
        said: Callable[[], str] = str
        ended = asyncio.Event()
        transport: Any
        if definition.transport is McpTransport.STDIO:
            wire = stdio.StdioWire(machine, await stdio.start(machine, name, definition), hold())
            transport, ended, said = wire.connect(), wire.ended, lambda: wire.last_words
        elif definition.transport is McpTransport.SSE:
            transport = _over_events(definition, dial, ended, hold)
        else:
            transport = _over_http(definition, dial, hold)
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
            raise UpstreamFailed(_why(problem, start_seconds), said()) from problem
        # Schemas come from the server, and their patterns may take for ever to evaluate. Results are left to the caller
        # to judge.
        client.session.validate_tool_result = _not_judged  # type: ignore[method-assign]
        yield UpstreamSession(client, ended, changed), said


class UpstreamFailed(Exception):
    """The server could not be started or reached. ``said``: what it wrote to its standard error."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


@asynccontextmanager
async def _until_ended(client: Client, ended: asyncio.Event) -> AsyncIterator[None]:
    """The handshake, cancelled if the program ends instead of answering."""
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
            raise UpstreamFailed("It ended before it had answered.") from None
        raise
    finally:
        watching.cancel()
    try:
        yield
    finally:
        await client.__aexit__(None, None, None)


async def _not_judged(name: str, result: types.CallToolResult) -> None: ...


@asynccontextmanager
async def _over_http(definition: Definition, dial: remote.Dial | None, hold: Hold) -> AsyncIterator[Any]:
    async with (
        remote.client(dial, definition.headers, hold) as http,
        streamable_http_client(definition.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        yield streams


@asynccontextmanager
async def _over_events(
    definition: Definition, dial: remote.Dial | None, ended: asyncio.Event, hold: Hold
) -> AsyncIterator[tuple[Any, Any]]:
    """The older transport: all messages of the server come in one stream, whose end is the end of the session."""

    def guarded(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        return remote.client(dial, definition.headers, hold)

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
    """The message of the first error in possibly nested exception groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, TimeoutError):
        return f"It did not answer within {seconds:g} s."
    if isinstance(problem, MCPError):
        return problem.error.message[:_MAX_REASON_LENGTH]
    if isinstance(problem, httpx2.HTTPStatusError):
        status = problem.response.status_code  # the error's own text contains the full URL, with any secrets in it
        return f"It answered with HTTP {status}. {_REFUSALS.get(status, '')}".rstrip()
    return str(problem)[:_MAX_REASON_LENGTH] or type(problem).__name__


def _known(tool: types.Tool) -> KnownTool:
    hints = tool.annotations or types.ToolAnnotations()
    schema = tool.output_schema
    if schema is not None and schema.get("type") != "object":
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    read_only = bool(hints.read_only_hint)
    return KnownTool(
        name=tool.name,
        title=(tool.title or hints.title or tool.name)[:_MAX_NAME_LENGTH],
        description=(tool.description or "")[:MAX_DESCRIPTION_LENGTH],
        input_schema=_capped(tool.input_schema) or {"type": "object"},
        output_schema=None if schema is None else _capped(schema),
        read_only=read_only,
        destructive=not read_only if hints.destructive_hint is None else hints.destructive_hint,
        idempotent=bool(hints.idempotent_hint),
    )


def _fitting(tools: Iterable[types.Tool], left: int) -> tuple[list[KnownTool], int]:
    """The first tools that fit in ``left`` characters, and how many are left; negative if not all fit."""
    found = []
    for tool in tools:
        if len(tool.name) > _MAX_NAME_LENGTH:
            continue
        known = _known(tool)
        left -= len(json.dumps(known.stored()))
        if left < 0:
            break
        found.append(known)
    return found, left


def _capped(schema: dict[str, Any]) -> dict[str, Any] | None:
    """A copy; None if the schema is too long for a listing."""
    written = json.dumps(schema)
    return json.loads(written) if len(written) <= MAX_SCHEMA_LENGTH else None


def _outcome(answer: types.CallToolResult) -> ToolOutcome:
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
    if data is not None and not _is_moderate(data):
        data = None
        texts.append(_TOO_MUCH_DATA)
    return ToolOutcome("\n".join(texts), data, tuple(pictures), answer.is_error)


def _is_moderate(data: Any) -> bool:
    """Whether data is small enough: it is shown, validated and serialized more than once."""
    values, characters, left = 0, 0, [data]
    while left:
        each = left.pop()
        values += 1
        if isinstance(each, dict):
            characters += sum(map(len, each))
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str):
            characters += len(each)
        if values + len(left) > _MAX_DATA_VALUES or characters > _MAX_DATA_CHARACTERS:
            return False
    return True
