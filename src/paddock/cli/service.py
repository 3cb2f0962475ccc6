"""``paddock service``: services that start when a port of a sandbox is first used."""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId, pairs
from paddock.cli.session import CliSession, command

service = typer.Typer(
    help="Services that start when their port is first used.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]


@service.command("add")
@command
def add(
    session: CliSession,
    sandbox_id: SandboxId,
    name: Name,
    port: Annotated[int, typer.Argument(metavar="PORT", help="The port that it listens on.")],
    words: Annotated[str, typer.Argument(metavar="CMD", help="Shell command that starts it.")],
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Additional variable.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="PATH", help="Working directory. [default: /workspace]")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Run as: user or root.")] = None,
    ready_path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Ready when a GET of this path succeeds, not when the port opens."),
    ] = None,
    ready_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time until it must be ready. [default: 30]")
    ] = None,
) -> None:
    """Add or change a service."""
    made = session.client.put_service(
        sandbox_id,
        name,
        port,
        words,
        env=pairs(env, "--env"),
        cwd=cwd,
        user=user,
        ready_path=ready_path,
        ready_timeout=ready_timeout,
    )
    session.answer(
        made, lambda: output.print_text(f"{made.name} starts with the first connection to port {made.port}.")
    )


@service.command("list")
@command
def list_(session: CliSession, sandbox_id: SandboxId) -> None:
    """List the services of a sandbox."""
    found = session.client.list_services(sandbox_id)
    session.answer(
        {"services": [dict(each) for each in found]},
        lambda: output.print_table(
            ("NAME", "PORT", "RUNS", "PROCESS", "COMMAND"),
            (
                (
                    output.escape(each.name),
                    str(each.port),
                    "[green]yes[/]" if each.running else "no",
                    each.process_id or "",
                    output.escape(each.command),
                )
                for each in found
            ),
        ),
    )


@service.command("remove")
@command
def remove(session: CliSession, sandbox_id: SandboxId, name: Name) -> None:
    """Remove a service, and stop it if it runs."""
    done = session.client.delete_service(sandbox_id, name)
    session.answer(done, lambda: None)
