"""MCP servers brought by the user: registered by the API or by a file in the workspace, relayed while in use.

Registered servers are stored together with their tools, so that listing tools does not resume the sandbox. The file is
read when tools are requested and the sandbox is running; a registered server takes precedence over one of the same name
in the file.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from paddock import errors
from paddock.accounts.accounts import Accounts, Principal
from paddock.accounts.byte_budget import ByteBudget
from paddock.accounts.quotas import check_mcp_servers, most_mcp_servers
from paddock.lifecycle.activity import RowCache
from paddock.lifecycle.controller import Controller
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.machine.base import Machine
from paddock.mcp.relay.definitions import Definition
from paddock.mcp.relay.relay import Relay
from paddock.mcp.relay.relays import Declared, Relays
from paddock.mcp.relay.tools import KnownTool, is_relayed, relayed
from paddock.models import McpServerStatus, State
from paddock.models.mcp import McpServer
from paddock.store import mcp_servers as stored
from paddock.store.database import Store
from paddock.store.records import McpServerRow, SandboxRow
from paddock.tools.argument_errors import unknown
from paddock.tools.tool import Tool

LIST_SECONDS = 15.0
"""How long a listing waits for servers whose tools are not known yet."""
CALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class McpServerView:
    """One server, as shown to users. Its definition still holds secrets."""

    name: str
    source: Literal["api", "file"]
    server: McpServer
    status: McpServerStatus
    reason: str | None
    tools: Sequence[str]


@dataclass(frozen=True, slots=True)
class McpServersView:
    servers: Sequence[McpServerView]
    problem: str | None
    """What is wrong with the file."""


class McpServers:
    def __init__(
        self,
        controller: Controller,
        store: Store,
        row_cache: RowCache,
        calls: ProviderCalls,
        accounts: Accounts,
        in_flight: ByteBudget,
    ) -> None:
        self._controller = controller
        self._store = store
        self._row_cache = row_cache
        self._calls = calls
        self._accounts = accounts
        self._in_flight = in_flight
        self._relays: dict[str, Relays] = {}
        self._letting_go: set[asyncio.Task[None]] = set()
        store.tell_changes(self._changed)

    async def close(self) -> None:
        """Detach from all servers. Those that run in sandboxes keep running."""
        relays, self._relays = list(self._relays.values()), {}
        await asyncio.gather(*(each.close() for each in relays), *self._letting_go)

    # Registration

    async def put(self, who: Principal, sandbox_id: str, servers: Mapping[str, McpServer]) -> McpServersView:
        """Add or replace these servers; others are kept."""
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        before = {each.name: each for each in await self._registered(sandbox_id)}
        check_mcp_servers(who.quota, servers, others=len(before.keys() - servers.keys()))
        async with self._store.write() as connection:
            for name, server in servers.items():
                known = before.get(name)
                same = known is not None and known.definition == server.stored()
                tools = known.tools if known is not None and same else None
                await stored.put(connection, McpServerRow(sandbox_id, name, server.stored(), tools))
        return await self._overview(sandbox)

    async def begin(self, who: Principal, sandbox_id: str) -> None:
        """Start the servers that the sandbox was created with, so that their tools are known at the first listing."""
        await self._overview((await self._controller.get(who, sandbox_id)).sandbox)

    async def list(self, who: Principal, sandbox_id: str) -> McpServersView:
        """List the servers without resuming the sandbox or starting any."""
        return await self._overview((await self._controller.get(who, sandbox_id)).sandbox, start=False)

    async def get(self, who: Principal, sandbox_id: str, name: str) -> McpServerView:
        overview = await self.list(who, sandbox_id)
        found = next((each for each in overview.servers if each.name == name), None)
        if found is None:
            raise errors.McpServerNotFound(f"Sandbox {sandbox_id!r} has no MCP server {name!r}.")
        return found

    async def remove(self, who: Principal, sandbox_id: str, name: str | None = None) -> None:
        """Remove a server and end its process; without a name, all registered servers."""
        sandbox = (await self._controller.get(who, sandbox_id)).sandbox
        names = [each.name for each in await self._registered(sandbox_id) if name in (None, each.name)]
        if name is not None and not names:
            raise errors.McpServerNotFound(
                f"No MCP server {name!r} was registered for sandbox {sandbox_id!r}. One from /workspace/.mcp.json is "
                "removed by changing that file."
            )
        async with self._store.write() as connection:
            await stored.remove(connection, sandbox_id, names)
        await self._overview(sandbox, start=False)

    # Tools

    async def tools(self, sandbox: SandboxRow) -> builtins.list[Tool]:
        """The tools of all servers that have reported theirs; waits briefly for new servers. Does not resume the
        sandbox."""
        registered = await self._registered(sandbox.sandbox_id)
        machine = await self.machine(sandbox.sandbox_id)
        if machine is None:
            return self._remembered(sandbox, registered)
        relays = await self._synced(sandbox, machine, registered)
        if relays is None:
            return []
        relays.start()
        await relays.settled(LIST_SECONDS)
        return relays.tools()

    async def find(self, sandbox: SandboxRow, name: str) -> Tool | None:
        """Find a relayed tool of a running sandbox. None if the name is not that of a relayed tool."""
        if not is_relayed(name):
            return None
        registered = await self._registered(sandbox.sandbox_id)
        machine = await self.machine(sandbox.sandbox_id)
        relays = None if machine is None else await self._synced(sandbox, machine, registered)
        found = None if relays is None else await relays.find(name, CALL_SECONDS)
        if found is None:
            known = [] if relays is None else [tool.name for tool in relays.tools()]
            if not known:
                raise errors.ToolNotFound(
                    f"There is no tool {name[:80]!r}: no MCP server of this sandbox has told of any tools."
                )
            raise errors.ToolNotFound(unknown("tool", name, known))
        return found

    # Internal

    async def _registered(self, sandbox_id: str) -> builtins.list[McpServerRow]:
        async with self._store.read() as connection:
            return await stored.of(connection, sandbox_id)

    def _changed(self, sandbox_ids: Collection[str]) -> None:
        for sandbox_id in sandbox_ids:
            if sandbox_id in self._relays:
                task = asyncio.create_task(self._detach(sandbox_id))
                self._letting_go.add(task)
                task.add_done_callback(self._letting_go.discard)

    async def _detach(self, sandbox_id: str) -> None:
        """Close the sandbox's relays if it was deleted."""
        row = await self._row_cache.get(sandbox_id)
        if (row is None or row.state is State.DELETED) and (relays := self._relays.pop(sandbox_id, None)) is not None:
            await relays.close()

    async def machine(self, sandbox_id: str) -> Machine | None:
        """The sandbox's machine; None if it is not running."""
        row = await self._row_cache.get(sandbox_id)
        if row is None or row.state is not State.RUNNING:
            return None
        try:
            return await self._calls.attach(row)
        except (errors.NotFound, errors.Conflict):
            return None

    async def _synced(self, sandbox: SandboxRow, machine: Machine, registered: Sequence[McpServerRow]) -> Relays | None:
        """The relays, brought in line with the current registrations and the file. None if the sandbox has no
        servers."""
        relays = self._relays.get(sandbox.sandbox_id)
        if relays is None:
            relays = Relays(sandbox.env, partial(self._relay, sandbox), partial(self._most, sandbox))
        declared = {each.name: Declared(McpServer.model_validate(each.definition), each.tools) for each in registered}
        await relays.sync(machine, declared)
        if relays.empty:
            self._relays.pop(sandbox.sandbox_id, None)
            return None
        return self._relays.setdefault(sandbox.sandbox_id, relays)

    async def _most(self, sandbox: SandboxRow) -> int:
        """Maximum number of servers that the owner may have in this sandbox."""
        return most_mcp_servers(await self._accounts.quota_for(sandbox.owner_id))

    def _relay(self, sandbox: SandboxRow, name: str, definition: Definition, declared: Declared) -> Relay:
        sandbox_id = sandbox.sandbox_id

        async def learned(tools: Sequence[KnownTool]) -> None:
            async with self._store.write() as connection:
                await stored.learn(connection, sandbox_id, name, [tool.stored() for tool in tools])

        provider = self._calls.of(sandbox)
        return Relay(
            name,
            definition,
            lambda: self.machine(sandbox_id),
            lambda host, port, seconds: provider.connect_out(sandbox_id, host, port, seconds),
            declared.known,
            None if declared.from_file else learned,
            self._in_flight.of(sandbox.owner_id),
        )

    def _remembered(self, sandbox: SandboxRow, registered: Sequence[McpServerRow]) -> builtins.list[Tool]:
        """Tools as known from the servers' last run."""
        found: dict[str, Tool] = {}
        relays = self._relays.get(sandbox.sandbox_id)
        if relays is not None:
            found = {tool.name: tool for tool in relays.tools()}
        for each in registered:
            if not each.definition.get("disabled"):
                for tool in each.tools or ():
                    made = relayed(each.name, KnownTool(**tool), None)
                    found.setdefault(made.name, made)
        return list(found.values())

    async def _overview(self, sandbox: SandboxRow, *, start: bool = True) -> McpServersView:
        registered = await self._registered(sandbox.sandbox_id)
        machine = await self.machine(sandbox.sandbox_id)
        relays = None if machine is None else await self._synced(sandbox, machine, registered)
        if relays is not None and start:
            relays.start()
        shown: builtins.list[McpServerView] = []
        for each in registered:
            server = McpServer.model_validate(each.definition)
            status, reason, tools = (None, None, None) if relays is None else relays.state(each.name)
            names = [relayed(each.name, KnownTool(**tool), None).name for tool in each.tools or ()]
            idle = McpServerStatus.DISABLED if server.disabled else McpServerStatus.IDLE
            shown.append(
                McpServerView(each.name, "api", server, status or idle, reason, names if tools is None else tools)
            )
        if relays is not None:
            for name, server in relays.from_file():
                status, reason, tools = relays.state(name)
                idle = McpServerStatus.DISABLED if server.disabled else McpServerStatus.IDLE
                shown.append(McpServerView(name, "file", server, status or idle, reason, tools or []))
        return McpServersView(shown, None if relays is None else relays.problem)
