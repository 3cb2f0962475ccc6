"""``paddock mcp``: MCP client configuration for a sandbox, and the user's own MCP servers in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId, pairs
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid

mcp = typer.Typer(
    help="A sandbox's tools over MCP, and your own MCP servers among them.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name.")]


@mcp.command("config")
@command
def config(
    session: CliSession,
    sandbox_id: SandboxId,
    tools: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Tools to show: minimal, full, or kits and names, such as files,shell."),
    ] = None,
) -> None:
    """Print an .mcp.json with which an MCP client reaches the sandbox."""
    box = session.client.get_status(sandbox_id)
    url = box.mcp_url if tools is None else f"{box.mcp_url}?{urlencode({'tools': tools}, safe=',*')}"
    server = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {box.mcp_token}"}}
    output.print_json({"mcpServers": {"paddock": server}})


@mcp.command("add")
@command
def add(
    session: CliSession,
    sandbox_id: SandboxId,
    name: Name,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="CMD...", help="The program and its arguments, after --.")
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="URL of the server, instead of a program.")] = None,
    type_: Annotated[
        Literal["http", "sse"] | None,
        typer.Option("--type", help="Transport at the URL; sse is the older one. [default: http]"),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every request.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Additional variable.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="PATH", help="Working directory. [default: /workspace]")] = None,
    preset: Annotated[
        Literal["claude", "codex"] | None, typer.Option(help="Claude Code's or Codex's own MCP server.")
    ] = None,
) -> None:
    """Add or change one of your MCP servers."""
    given: dict[str, Any] = {
        "command": words[0] if words else None,
        "args": words[1:] if words else None,
        "url": url,
        "type": type_,
        "headers": pairs(header, "--header"),
        "env": pairs(env, "--env"),
        "cwd": cwd,
        "preset": preset,
    }
    server = {field: value for field, value in given.items() if value is not None}
    made = session.client.put_mcp_server(sandbox_id, name, server)
    session.answer(
        made, lambda: output.print_text(f"{made.name}: {made.status.value}. Its tools are called mcp_{made.name}_…")
    )


@mcp.command("import")
@command
def import_(
    session: CliSession,
    sandbox_id: SandboxId,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of an .mcp.json.")] = Path(".mcp.json"),
) -> None:
    """Register every server of a local .mcp.json."""
    try:
        document = json.loads(file.read_text())
    except ValueError as problem:
        raise Invalid(f"{file} is not JSON: {problem}") from problem
    if not isinstance(document, dict):
        raise Invalid(f"{file} is not a document with mcpServers.")
    _show(session, session.client.put_mcp_servers(sandbox_id, document))


@mcp.command("list")
@command
def list_(session: CliSession, sandbox_id: SandboxId) -> None:
    """List your MCP servers in a sandbox with their status."""
    _show(session, session.client.list_mcp_servers(sandbox_id))


@mcp.command("remove")
@command
def remove(session: CliSession, sandbox_id: SandboxId, name: Name) -> None:
    """Remove one of your MCP servers, and stop it if it runs."""
    done = session.client.delete_mcp_server(sandbox_id, name)
    session.answer(done, lambda: None)


def _show(session: CliSession, found: list[Any]) -> None:
    session.answer(
        {"servers": [dict(each) for each in found]},
        lambda: output.print_table(
            ("NAME", "STATUS", "TOOLS", "FROM", "HOW"),
            (
                (
                    output.escape(each.name),
                    output.escape(each.status.value),
                    str(len(each.tools)),
                    each.source,
                    output.escape(each.reason or each.url or " ".join([each.command or each.preset or "", *each.args])),
                )
                for each in found
            ),
        ),
    )
