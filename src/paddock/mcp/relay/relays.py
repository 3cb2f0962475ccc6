"""The relays of one sandbox: kept in line with the servers declared by the API or by the file in its workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock import errors
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine
from paddock.mcp.relay.definitions import FILE, Definition, define, read_document
from paddock.mcp.relay.relay import Relay
from paddock.mcp.relay.tools import KnownTool, tool_name
from paddock.models import McpServerStatus
from paddock.models.mcp import McpServer
from paddock.tools.tool import Tool

LARGEST_FILE = 256 * 1024


@dataclass(frozen=True, slots=True)
class Declared:
    server: McpServer
    tools: Sequence[Mapping[str, Any]] | None = None
    """Tools as last stored."""
    from_file: bool = False

    @property
    def known(self) -> list[KnownTool]:
        return [KnownTool(**tool) for tool in self.tools or ()]


Make = Callable[[str, Definition, Declared], Relay]
State = tuple[McpServerStatus | None, str | None, list[str] | None]


class Relays:
    def __init__(
        self,
        env: Mapping[str, str],
        make: Make,
        most: Callable[[], Awaitable[int]] | None = None,
        *,
        workspace: str = WORKSPACE,
        user: str = DEFAULT_USER,
    ) -> None:
        """``most``: maximum number of servers; registered ones come before those of the file."""
        self._env = env
        self._make = make
        self._most = most
        self._workspace = workspace
        self._user = user
        self._relays: dict[str, Relay] = {}
        self._refused: dict[str, str] = {}
        """Servers that cannot be used, and why."""
        self._defined: dict[str, tuple[McpServer, Definition]] = {}
        """Definitions from the previous call, so that an unchanged server costs only a comparison."""
        self._registered: frozenset[str] = frozenset()
        self._file: dict[str, McpServer] = {}
        self._stamp: tuple[float, int] | None = None
        self._turn = asyncio.Lock()
        self.problem: str | None = None

    @property
    def empty(self) -> bool:
        return not (self._relays or self._refused or self._file or self.problem)

    async def sync(self, machine: Machine, registered: Mapping[str, Declared]) -> None:
        """Keep exactly the relays that are declared now. A changed definition is a new server."""
        async with self._turn:
            await self._read_file(machine)
            file = {name: Declared(server, from_file=True) for name, server in self._file.items()}
            declared = {**registered, **{name: each for name, each in file.items() if name not in registered}}
            wanted = {name: each for name, each in declared.items() if not each.server.disabled}
            self._registered = frozenset(registered)
            self._refused = {}
            await self._leave_out(wanted)
            definitions: dict[str, Definition] = {}
            for name, each in wanted.items():
                try:
                    definitions[name] = self._define(name, each.server)
                except errors.Invalid as problem:
                    self._refused[name] = problem.message
            self._defined = {name: (wanted[name].server, made) for name, made in definitions.items()}
            for name, relay in list(self._relays.items()):
                if definitions.get(name) != relay.definition:
                    del self._relays[name]
                    await relay.end()
            for name in definitions.keys() - self._relays.keys():
                self._relays[name] = self._make(name, definitions[name], wanted[name])

    def _define(self, name: str, server: McpServer) -> Definition:
        known = self._defined.get(name)
        if known is not None and known[0] == server:
            return known[1]
        return define(server, self._env, workspace=self._workspace, user=self._user)

    async def _leave_out(self, wanted: dict[str, Declared]) -> None:
        """Drop servers above the maximum: a file in the workspace has no limit of its own."""
        if self._most is None or not wanted or len(wanted) <= (most := await self._most()):
            return
        for name in list(wanted)[most:]:
            del wanted[name]
            self._refused[name] = f"A sandbox may have {most} MCP servers; this one is too many."

    def start(self) -> None:
        for relay in self._relays.values():
            relay.start()

    async def settled(self, seconds: float) -> None:
        """Wait for servers whose tools are not known yet, all at once."""
        new = [relay for relay in self._relays.values() if not relay.known]
        await asyncio.gather(*(relay.settled(seconds) for relay in new))

    def tools(self) -> list[Tool]:
        """Each name once; if two servers produce the same name, the first one has it."""
        found: dict[str, Tool] = {}
        for name in sorted(self._relays):
            for tool in self._relays[name].tools:
                found.setdefault(tool.name, tool)
        return list(found.values())

    async def find(self, name: str, seconds: float) -> Tool | None:
        found = {tool.name: tool for tool in self.tools()}
        if name not in found:
            likely = [relay for relay in self._relays.values() if name.startswith(_beginning(relay))]
            for relay in likely:
                relay.start()
            await asyncio.gather(*(relay.settled(seconds) for relay in likely))
            found = {tool.name: tool for tool in self.tools()}
        return found.get(name)

    def state(self, name: str) -> State:
        if name in self._refused:
            return McpServerStatus.FAILED, self._refused[name], []
        relay = self._relays.get(name)
        if relay is None:
            return None, None, None
        return relay.status, relay.reason, [tool.name for tool in relay.tools]

    def from_file(self) -> list[tuple[str, McpServer]]:
        """Servers of the file that are not also registered by the API."""
        return [(name, server) for name, server in self._file.items() if name not in self._registered]

    async def close(self) -> None:
        await asyncio.gather(*(relay.stop() for relay in self._relays.values()))

    async def _read_file(self, machine: Machine) -> None:
        """Read the file if it has changed. An invalid file leaves the servers as they are, and its error is
        reported."""
        path = f"{self._workspace}/{FILE}"
        try:
            info = await machine.stat(path, follow=True, user=self._user)
            stamp = (info.modified_at, info.size)
            if stamp == self._stamp:
                return
            content = b"".join(
                [part async for part in machine.read_file(path, limit=LARGEST_FILE + 1, user=self._user)]
            )
        except (errors.NotFound, errors.PathConflict, errors.PathDenied):
            self._file, self._stamp, self.problem = {}, None, None
            return
        self._stamp = stamp
        try:
            if len(content) > LARGEST_FILE:
                raise errors.Invalid(f"{FILE} is over {LARGEST_FILE} bytes.")
            self._file, self.problem = read_document(content), None
        except errors.Invalid as problem:
            self.problem = problem.message


def _beginning(relay: Relay) -> str:
    return tool_name(relay.name, "")
