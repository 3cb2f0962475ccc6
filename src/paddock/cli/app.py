"""The table of contents of the ``paddock`` command."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from paddock.cli import code, confinement, copy, exec, inspect, logs, observe, ports, run, sandboxes
from paddock.cli.addon import addon
from paddock.cli.destroy import destroy
from paddock.cli.doctor import doctor
from paddock.cli.down import down
from paddock.cli.keys import keys
from paddock.cli.mcp import mcp
from paddock.cli.service import service
from paddock.cli.session import NOBODY_READS, ApiKey, Json, Server
from paddock.cli.shell import shell
from paddock.cli.template import template
from paddock.cli.tool import tool
from paddock.cli.up import up
from paddock.cli.users import users


class Sections(TyperGroup):
    """Lists the commands under headings. Typer does so only through Rich, whose import alone takes longer than all the
    rest of ``paddock --help``."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, found in self.commands.items():
            if not found.hidden:
                heading = getattr(found, "rich_help_panel", None) or "Commands"
                sections.setdefault(str(heading), []).append((name, found.get_short_help_str(100)))
        width = max(len(name) for rows in sections.values() for name, _ in rows)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


app = typer.Typer(
    cls=Sections,
    help="Paddock: sandboxes for AI agents, on your own machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SANDBOXES, INSIDE, SERVER = "Sandboxes", "Inside a sandbox", "The server"

app.command("create", rich_help_panel=SANDBOXES)(sandboxes.create)
app.command("run", rich_help_panel=SANDBOXES)(run.run)
app.command("list", rich_help_panel=SANDBOXES)(sandboxes.list_)
app.command("status", rich_help_panel=SANDBOXES)(sandboxes.status)
app.command("inspect", rich_help_panel=SANDBOXES)(inspect.inspect)
app.command("timeout", rich_help_panel=SANDBOXES)(sandboxes.timeout)
app.command("pause", rich_help_panel=SANDBOXES)(sandboxes.pause)
app.command("resume", rich_help_panel=SANDBOXES)(sandboxes.resume)
app.command("kill", rich_help_panel=SANDBOXES)(sandboxes.kill)
app.command("delete", hidden=True)(sandboxes.kill)
app.command("events", rich_help_panel=SANDBOXES)(observe.events)
app.command("isolation", rich_help_panel=SANDBOXES)(confinement.isolation)
app.command("egress", rich_help_panel=SANDBOXES)(confinement.egress)
app.command("exec", rich_help_panel=INSIDE)(exec.exec_)
app.command("shell", rich_help_panel=INSIDE)(shell)
app.command("run-code", rich_help_panel=INSIDE)(code.run_code)
app.add_typer(service, name="service", rich_help_panel=INSIDE)
app.add_typer(mcp, name="mcp", rich_help_panel=INSIDE)
app.add_typer(tool, name="tool", rich_help_panel=INSIDE)
app.command("cp", rich_help_panel=INSIDE)(copy.cp)
app.command("logs", rich_help_panel=INSIDE)(logs.logs)
app.command("url", rich_help_panel=INSIDE)(ports.url)
app.command("open", rich_help_panel=INSIDE)(ports.open_)
app.command("up", rich_help_panel=SERVER)(up)
app.command("down", rich_help_panel=SERVER)(down)
app.command("destroy", rich_help_panel=SERVER)(destroy)
app.add_typer(keys, name="keys", rich_help_panel=SERVER)
app.add_typer(users, name="users", rich_help_panel=SERVER)
app.add_typer(template, name="template", rich_help_panel=SERVER)
app.add_typer(addon, name="addon", rich_help_panel=SERVER)
app.command("usage", rich_help_panel=SERVER)(observe.usage)
app.command("health", rich_help_panel=SERVER)(observe.health)
app.command("version", rich_help_panel=SERVER)(observe.version)
app.command("doctor", rich_help_panel=SERVER)(doctor)


@app.callback()
def options(server: Server = None, api_key: ApiKey = None, json: Json = False) -> None:
    """Paddock: sandboxes for AI agents, on your own machine."""
    # Read by `session.command`, which takes the same options after the command's name.


def main() -> None:
    try:
        try:
            app(prog_name="paddock")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python writes what is left once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)
