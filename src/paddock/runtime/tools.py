"""Tools, called on a sandbox: each call is a use of it like a command, wakes it, and is counted."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import ByteBudget
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.machine.base import DEFAULT_USER, Connection
from paddock.mcp.relay.names import is_relayed
from paddock.runtime.mcp_servers import McpServers
from paddock.runtime.port_links import PortLinks
from paddock.runtime.services import Services
from paddock.store.records import SandboxRow
from paddock.tools import catalogue
from paddock.tools.context import Progress, ToolContext, unheard
from paddock.tools.installed import not_installed
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome
from paddock.workers import Workers

_MAX_REMEMBERED = 4096
"""Sandboxes of which it is known what is not installed in them."""


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
        """What MCP clients are shown that ask for nothing in particular."""
        self._controller = controller
        self._mcp_servers = mcp_servers
        self._services = services
        self._port_links = port_links
        self._workers = workers
        self._mcp_port = mcp_port
        self._in_flight = in_flight
        self._not_installed: dict[str, frozenset[str]] = {}

    async def list(self, who: Principal, sandbox_id: str) -> list[Tool]:
        """Those that this sandbox has. Wakes nobody."""
        seen = await self._controller.get(who, sandbox_id)
        return await self.of(seen.sandbox)

    async def of(self, sandbox: SandboxRow) -> builtins.list[Tool]:
        """The catalogue, and what the user's own MCP servers bring."""
        return [*catalogue.TOOLS.values(), *await self._mcp_servers.tools(sandbox)]

    async def shown(self, sandbox: SandboxRow, selection: Selection) -> builtins.list[Tool]:
        """For a model: those of the selection."""
        missing = await self._look(sandbox) if selection.needs_look else frozenset()
        return selection.of(await self.of(sandbox), missing)

    async def _look(self, sandbox: SandboxRow) -> frozenset[str]:
        """What is not installed in it; of one that is asleep, as it was when somebody looked last."""
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
        """Raises for a name that no sandbox can have a tool by, before anybody is woken for it."""
        if not is_relayed(name):
            catalogue.find(name)

    async def call(
        self,
        who: Principal,
        sandbox_id: str,
        name: str,
        arguments: Mapping[str, Any],
        progress: Progress = unheard,
    ) -> ToolOutcome:
        """One call to its end. A tool that fails is an answer."""
        self.check(name)
        async with self._controller.use(who, sandbox_id) as use:
            return await self.act(use, await self.find(use.sandbox, name), arguments, progress)

    async def act(
        self, use: ActiveSandbox, tool: Tool, arguments: Mapping[str, Any], progress: Progress = unheard
    ) -> ToolOutcome:
        """The same for whoever is inside already."""
        outcome = await tool.call(self.ctx(use, progress), arguments)
        told = {"tool": tool.name, "failed": outcome.failed}
        await use.record(commands=1, bytes_out=len(outcome.text), event=("tool.called", told))
        return outcome

    def ctx(self, use: ActiveSandbox, progress: Progress = unheard) -> ToolContext:
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
        except errors.Conflict:  # nobody listens
            await self._services.reach(use, port)
            return await use.machine.dial(port)
