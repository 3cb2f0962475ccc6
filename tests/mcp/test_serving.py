"""Tools over MCP, by the newest SDK in this process: what a client is told, and what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ImageContent, ToolAnnotations

from paddock import errors
from paddock.mcp import server
from paddock.tools import catalogue
from paddock.tools.context import Progress
from paddock.tools.selection import Selection
from paddock.tools.tool import Picture, Tool, ToolOutcome
from tests.support.waiting import PATIENCE_S

ERAS = ("legacy", "auto")


class Counter:
    """A desk with the real catalogue, whose calls do what their arguments say."""

    usual = Selection.parse("full")

    def __init__(self, *more: Tool) -> None:
        self.more = more
        self.cancelled = asyncio.Event()
        self.heard = asyncio.Event()

    async def tools(self, selection: Selection) -> list[Tool]:
        return selection.of([*catalogue.TOOLS.values(), *self.more])

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        match arguments:
            case {"show": True}:
                return ToolOutcome("look", {"seen": 1}, (Picture(b"\x89PNG"),))
            case {"fail": why}:
                return ToolOutcome(why, failed=True)
            case {"raise": why}:
                raise errors.SandboxGone(why)
            case {"tell": words}:
                for word in words:
                    await progress(word)
            case {"wait": True}:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            case {"until": "heard"}:
                async with asyncio.timeout(PATIENCE_S):
                    await self.heard.wait()
            case _:
                catalogue.find(name)
        return ToolOutcome("done", {})


@pytest.mark.parametrize("era", ERAS)
async def test_every_tool_is_listed_with_its_hints_and_all_of_its_arguments(era: str) -> None:
    async with Client(server.serve(Counter()), mode=era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert listed.keys() == catalogue.TOOLS.keys()
    for name, tool in catalogue.TOOLS.items():
        found = listed[name]
        assert found.input_schema["properties"].keys() == tool.input_schema["properties"].keys()
        assert found.input_schema.get("required") == tool.input_schema.get("required")
        jsonschema_rs.meta.validate(found.input_schema)
        hints = found.annotations or ToolAnnotations()  # the protocol's own word for a tool with nothing special
        assert bool(hints.read_only_hint) is tool.read_only and found.description == tool.description
        assert bool(hints.idempotent_hint) is (tool.idempotent and not tool.read_only)
        assert (hints.destructive_hint is not False and not hints.read_only_hint) is tool.destructive
        assert (hints.open_world_hint is not False) is tool.open_world


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_is_content_alone_so_that_models_see_text_and_pictures(era: str) -> None:
    async with Client(server.serve(Counter()), mode=era) as client:
        assert all(tool.output_schema is None for tool in (await client.list_tools()).tools)
        result = await client.session.call_tool("anything", {"show": True})
    text, picture = result.content
    assert text.text == "look" and result.structured_content is None and not result.is_error  # type: ignore[union-attr]
    assert isinstance(picture, ImageContent) and picture.mime_type == "image/png"


async def test_another_servers_data_is_passed_on_but_never_beside_a_picture() -> None:
    async with Client(server.serve(Counter())) as client:
        told = await client.session.call_tool("mcp_mine_tell", {"tell": []})
        shown = await client.session.call_tool("mcp_mine_show", {"show": True})
    assert told.structured_content == {} and shown.structured_content is None and len(shown.content) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_fails_and_a_sandbox_that_is_gone_are_told_to_the_model(era: str) -> None:
    async with Client(server.serve(Counter()), mode=era) as client:
        for argument in ("fail", "raise"):
            result = await client.call_tool("read_file", {argument: "because"})
            assert result.is_error and result.content[0].text == "because"  # type: ignore[union-attr]


async def test_a_tool_that_there_is_not_is_an_error_of_the_protocol() -> None:
    async with Client(server.serve(Counter())) as client:
        for asked, meant in (("run_comand", "run_command"), ("grep", "grep_files"), ("file_raed", "read_file")):
            with pytest.raises(MCPError, match=f"no tool {asked!r}. The nearest: .*{meant}"):
                await client.call_tool(asked, {})


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_tool_says_meanwhile_is_heard(era: str) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(server.serve(Counter()), mode=era) as client:
        await client.call_tool("anything", {"tell": ["one", "two"]}, progress_callback=hear)
    assert heard == ["one", "two"]


async def test_a_long_call_gives_a_sign_of_life_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROGRESS_SECONDS", 0.01)
    host = Counter()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        host.heard.set()

    async with Client(server.serve(host)) as client:
        result = await client.call_tool("anything", {"until": "heard"}, progress_callback=hear)
    assert not result.is_error


async def test_a_call_that_its_client_gives_up_is_given_up_here() -> None:
    host = Counter()
    async with Client(server.serve(host), mode="legacy") as client:
        with pytest.raises(MCPError):
            await client.call_tool("anything", {"wait": True}, read_timeout_seconds=0.2)
        async with asyncio.timeout(PATIENCE_S):
            await host.cancelled.wait()
