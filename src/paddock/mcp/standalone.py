"""The machine that this process runs on, as a Machine: runs Paddock's agent as an ordinary process.

For sandboxes made by other systems (E2B, Daytona, a plain container), without a Paddock server outside. The agent
provides no isolation here: anyone who has the token acts as this process's user.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import browser, errors, interpreter
from paddock.machine.agent.machine import AgentMachine
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Connection
from paddock.mcp.relay.definitions import Definition
from paddock.mcp.relay.relay import Relay
from paddock.mcp.relay.relays import Declared, Relays
from paddock.mcp.relay.tools import is_relayed
from paddock.providers.common.programs import Programs
from paddock.tools import catalogue
from paddock.tools.context import Progress, ToolContext
from paddock.tools.installed import BROWSER, not_installed
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolOutcome
from paddock.workers import Workers

LIST_SECONDS = 15.0
CALL_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SECRETS = ("PADDOCK_MCP_TOKEN",)
"""Paddock's own, not passed on to processes."""
_UNAVAILABLE = {
    interpreter.PORT: "The code interpreter is a service of a Paddock server, and does not run on this machine. "
    "Use run_command with python3.",
    browser.PORT: "The browser is a service of a Paddock server, and does not run on this machine. "
    "Playwright's own MCP server can be used instead: add it to .mcp.json.",
}
_SERVER_TOOLS = BROWSER | {"run_python"}
"""Tools for which these messages are returned."""


@dataclass(frozen=True, slots=True)
class StandaloneHost:
    """User and directories in which the tools act."""

    user: str
    home: str
    workspace: str

    @classmethod
    def here(cls, workspace: str | None = None, user: str | None = None) -> StandaloneHost:
        """As root, ``user`` is used if it exists, as in a sandbox."""
        own = pwd.getpwuid(os.getuid())
        wanted = user or (DEFAULT_USER if own.pw_uid == 0 and _exists(DEFAULT_USER) else own.pw_name)
        try:
            entry = pwd.getpwnam(wanted)
        except KeyError:
            raise errors.Invalid(f"There is no user {wanted!r} on this machine.") from None
        usual = WORKSPACE if Path(WORKSPACE).is_dir() else str(Path.cwd())
        return cls(entry.pw_name, entry.pw_dir, str(Path(workspace or usual).absolute()))


@asynccontextmanager
async def this_machine(place: StandaloneHost) -> AsyncIterator[AgentMachine]:
    """Ends everything started in it on exit, as the end of a container does."""
    program = Programs.find().agent
    if not os.access(program, os.X_OK):
        raise errors.Unsupported(str(Programs.find().problem()))
    folder = Path(tempfile.mkdtemp(prefix="paddock-mcp-"))
    process, address = _start(program, folder)
    environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    environment |= {"HOME": place.home, "USER": place.user}

    async def connect() -> socket.socket:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.connect(address)
        return end

    machine = AgentMachine("this_machine", connect, lambda: environment)
    try:
        yield machine
    finally:
        await machine.aclose()
        process.send_signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class MachineToolHost:
    """Implements :class:`~paddock.mcp.tool_host.ToolHost` for the given machine."""

    def __init__(self, machine: AgentMachine, place: StandaloneHost, env: Mapping[str, str], usual: Selection) -> None:
        self._machine = machine
        self._place = place
        self._usual = usual
        self._workers = Workers()
        self._relays = Relays(env, self._relay, workspace=place.workspace, user=place.user)

    @property
    def usual(self) -> Selection:
        return self._usual

    async def tools(self, selection: Selection) -> list[Tool]:
        await self._relays.sync(self._machine, {})
        self._relays.start()
        await self._relays.settled(LIST_SECONDS)
        missing = await not_installed(self._machine, self._place.user) if selection.needs_look else None
        tools = [*catalogue.TOOLS.values(), *self._relays.tools()]
        return selection.of(tools, _SERVER_TOOLS | (missing or frozenset()))

    async def call(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> ToolOutcome:
        tool: Tool | None = None
        if is_relayed(name):
            await self._relays.sync(self._machine, {})
            tool = await self._relays.find(name, CALL_SECONDS)
        ctx = ToolContext(
            machine=self._machine,
            reach=self._reach,
            port_url=_local_url,
            program_url=_local_url,
            user=self._place.user,
            home=self._place.home,
            workspace=self._place.workspace,
            workers=self._workers,
            progress=progress,
        )
        return await (tool or catalogue.find(name)).call(ctx, arguments)

    async def close(self) -> None:
        await self._relays.close()
        await self._workers.close()

    async def _reach(self, port: int) -> Connection:
        try:
            return await self._machine.dial(port)
        except errors.Conflict as problem:  # the port is closed, and there is no server here to start the service
            raise errors.Unsupported(_UNAVAILABLE.get(port, problem.message)) from problem

    def _relay(self, name: str, definition: Definition, declared: Declared) -> Relay:
        async def attach() -> AgentMachine:
            return self._machine

        return Relay(name, definition, attach, None, declared.known)


def _start(program: Path, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    address = str(folder / "agent")
    (folder / "state").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(32)
        state = os.open(folder / "state", os.O_RDONLY | os.O_DIRECTORY)
        command = [str(program), "serve", "--listen", str(listener.fileno()), "--state", str(state), "--mode", "plain"]
        try:
            process = subprocess.Popen(
                [*command, "--sudo", str(folder / "none" / "sudo")],
                pass_fds=[listener.fileno(), state],
                stdin=subprocess.DEVNULL,
                env={},
                preexec_fn=_die_with_parent,  # before there are threads
            )
        finally:
            os.close(state)
    return process, address


def _local_url(port: int) -> str:
    return f"http://localhost:{port}/"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
