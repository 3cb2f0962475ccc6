"""The list of all ``paddock`` commands.

A command's module is imported when the command is named, and all modules only for the list in ``paddock --help``:
imports dominate the run time of a short command.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from paddock.cli.session import NOBODY_READS, ApiKey, Json, Server

if TYPE_CHECKING:
    from typer._click import Command

SECTIONS = {
    "Sandboxes": {
        "create": "sandboxes.create",
        "run": "run.run",
        "list": "sandboxes.list_",
        "status": "sandboxes.status",
        "inspect": "sandboxes.inspect",
        "timeout": "sandboxes.timeout",
        "pause": "sandboxes.pause",
        "resume": "sandboxes.resume",
        "kill": "sandboxes.kill",
        "events": "observe.events",
        "isolation": "confinement.isolation",
        "egress": "confinement.egress",
    },
    "Inside a sandbox": {
        "exec": "exec.exec_",
        "shell": "shell.shell",
        "logs": "logs.logs",
        "run-code": "code.run_code",
        "service": "service.service",
        "mcp": "mcp.mcp",
        "tool": "tool.tool",
        "cp": "copy.cp",
        "url": "ports.url",
        "open": "ports.open_",
    },
    "The server": {
        "up": "up.up",
        "down": "down.down",
        "destroy": "destroy.destroy",
        "keys": "keys.keys",
        "users": "users.users",
        "template": "template.template",
        "image": "image.image",
        "addon": "addon.addon",
        "usage": "observe.usage",
        "health": "observe.health",
        "version": "observe.version",
        "doctor": "doctor.doctor",
    },
}
"""Each command as ``module.name`` below ``paddock.cli``: a function, or a group of commands."""
ALIASES = {"delete": "sandboxes.kill"}
"""Accepted, but not listed in the help."""


class LazyCommands(MutableMapping[str, "Command"]):
    """Finds commands by name and imports each on first use."""

    def __init__(self) -> None:
        self._places = {name: place for section in SECTIONS.values() for name, place in section.items()} | ALIASES
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._loaded[name] = command
        self._places.setdefault(name, "")

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _load(name: str, place: str) -> Command:
    module, _, attribute = place.partition(".")
    found = getattr(import_module(f"paddock.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Command = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name, command.hidden = name, name in ALIASES
    return command


class Sections(TyperGroup):
    """Lists the commands by section. Typer supports that only through Rich, whose import alone takes longer than the
    rest of ``paddock --help``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for name in self.commands)
        for heading, section in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(100)) for name in section]
                )


app = typer.Typer(
    cls=Sections,
    help="Paddock: sandboxes for AI agents, on your own machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(server: Server = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Paddock: sandboxes for AI agents, on your own machine."""
    # Read by `session.command`, which accepts the same options after the command's name.


def main() -> None:
    gc.disable()  # until a command begins: objects created by the imports live as long as the process
    try:
        try:
            app(prog_name="paddock")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, and would report the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)
