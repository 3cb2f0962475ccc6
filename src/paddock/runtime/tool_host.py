"""A sandbox's tools over MCP: listing does not resume the sandbox, a call counts as use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.lifecycle.controller import Controller
from paddock.runtime.tools import Tools
from paddock.store.records import SandboxRow
from paddock.tools.context import Progress
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome


class SandboxToolHost:
    """For requests that are authorized already. Implements :class:`~paddock.mcp.tool_host.ToolHost`."""

    def __init__(self, sandbox: SandboxRow, controller: Controller, tools: Tools) -> None:
        self._sandbox = sandbox
        self._controller = controller
        self._tools = tools

    @property
    def usual(self) -> Selection:
        return self._tools.usual

    async def tools(self, selection: Selection) -> list[Tool]:
        return await self._tools.shown(self._sandbox, selection)

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        self._tools.check(name)
        async with self._controller.use_key(self._sandbox.key, wake=True) as use:
            tool = await self._tools.find(use.sandbox, name)
            return await self._tools.act(use, tool, arguments, progress)
