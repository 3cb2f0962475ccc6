"""Tool calls on a sandbox: each counts as use, like a command, resumes the sandbox and is recorded."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import ByteBudget
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.machine.base import DEFAULT_USER, Connection
from paddock.mcp.relay.tools import is_relayed
from paddock.runtime.mcp_servers import McpServers
from paddock.runtime.port_links import PortLinks
from paddock.runtime.services import Services
from paddock.store.records import SandboxRow
from paddock.tools import catalogue
from paddock.tools.context import Progress, ToolContext, ignore_progress
from paddock.tools.installed import not_installed
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome
from paddock.workers import Workers

_MAX_REMEMBERED = 4096
"""Number of sandboxes for which missing programs are remembered."""


class Tools:
    def __init__(
        self,
        controller: Controller,
        services: Services,
        port_links: PortLinks,
        mcp_servers: McpServers,
        workers: Workers,
        in_flight: ByteBudget,
        usual: Selection,
        mcp_port: int,
    ) -> None:
        self.usual = usual
        """The selection for MCP clients that request none."""
        self._controller = controller
        self._mcp_servers = mcp_servers
        self._services = services
        self._port_links = port_links
        self._workers = workers
        self._mcp_port = mcp_port
        self._in_flight = in_flight
        self._not_installed: dict[str, frozenset[str]] = {}

    async def list(self, who: Principal, sandbox_id: str) -> list[Tool]:
        """The sandbox's tools; does not resume it."""
        seen = await self._controller.get(who, sandbox_id)
        return await self.of(seen.sandbox)

    async def of(self, sandbox: SandboxRow) -> builtins.list[Tool]:
        """The built-in catalogue, and the tools of the user's own MCP servers."""
        return [*catalogue.TOOLS.values(), *await self._mcp_servers.tools(sandbox)]

    async def shown(self, sandbox: SandboxRow, selection: Selection) -> builtins.list[Tool]:
        """The selected tools, as shown to a model."""
        missing = await self._look(sandbox) if selection.needs_look else frozenset()
        return selection.of(await self.of(sandbox), missing)

    async def _look(self, sandbox: SandboxRow) -> frozenset[str]:
        """Programs that are not installed in the sandbox; if it is paused, as of the last check."""
        machine = await self._mcp_servers.machine(sandbox.sandbox_id)
        missing = None if machine is None else await not_installed(machine, DEFAULT_USER)
        if missing is None:
            return self._not_installed.get(sandbox.sandbox_id, frozenset())
        self._not_installed.pop(sandbox.sandbox_id, None)
        self._not_installed[sandbox.sandbox_id] = missing
        if len(self._not_installed) > _MAX_REMEMBERED:
            del self._not_installed[next(iter(self._not_installed))]
        return missing

    async def find(self, sandbox: SandboxRow, name: str) -> Tool:
        return await self._mcp_servers.find(sandbox, name) or catalogue.find(name)

    def check(self, name: str) -> None:
        """Raise for a name that no sandbox's tool can have, before the sandbox is resumed for it."""
        if not is_relayed(name):
            catalogue.find(name)

    async def call(
        self,
        who: Principal,
        sandbox_id: str,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress = ignore_progress,
    ) -> ToolOutcome:
        """Call a tool and return its outcome. A failing tool is an outcome, not an error."""
        self.check(name)
        async with self._controller.use(who, sandbox_id) as use:
            return await self.act(use, await self.find(use.sandbox, name), arguments, progress)

    async def act(
        self, use: ActiveSandbox, tool: Tool, arguments: Mapping[str, Any], progress: Progress = ignore_progress
    ) -> ToolOutcome:
        """The same, within an open use of the sandbox."""
        outcome = await tool.call(self.ctx(use, progress), arguments)
        told = {"tool": tool.name, "failed": outcome.failed}
        await use.record(commands=1, bytes_out=len(outcome.text), event=("tool.called", told))
        return outcome

    def ctx(self, use: ActiveSandbox, progress: Progress = ignore_progress) -> ToolContext:
        return ToolContext(
            machine=use.machine,
            reach=lambda port: self._reach(use, port),
            port_url=lambda port: self._port_links.exposed_url(use.sandbox, port),
            program_url=lambda port: self._port_links.program_url(use.sandbox, port),
            workers=self._workers.of(use.sandbox.owner_id),
            hold=self._in_flight.of(use.sandbox.owner_id),
            progress=progress,
            mcp_port=self._mcp_port,
            confined=True,
        )

    async def _reach(self, use: ActiveSandbox, port: int) -> Connection:
        try:
            return await use.machine.dial(port)
        except errors.Conflict:  # the port is closed
            await self._services.reach(use, port)
            return await use.machine.dial(port)


class SandboxToolHost:
    """A sandbox's tools over MCP, for requests that are authorized already: listing does not resume the sandbox, a call
    counts as use. Implements :class:`~paddock.mcp.tool_host.ToolHost`."""

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
