"""``paddock shell``: a shell in a sandbox, on this terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.arguments import complete_sandbox_id
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.cli.interactive import InteractiveProgram

DetachKeys = Annotated[str, typer.Option(metavar="KEYS", help="Keys to detach and leave it running; '' for none.")]


@command
def shell(
    session: CliSession,
    sandbox_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The sandbox's id.", autocompletion=complete_sandbox_id)
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="PATH", help="Working directory. [default: /workspace]")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Run as: user or root.")] = None,
    attach: Annotated[
        str | None, typer.Option(metavar="PROCESS", help="Attach to a detached shell, by its process id.")
    ] = None,
    detach_keys: DetachKeys = "ctrl-]",
) -> None:
    """Open a shell in a sandbox, on this terminal."""
    from paddock.cli.interactive import InteractiveProgram

    if session.json:
        raise typer.BadParameter("cannot be used here: a shell is for people", param_hint="--json")
    if sandbox_id is None:
        raise Invalid(
            "Which sandbox? Run `paddock shell ID`: `paddock list` shows the ids, `paddock create` creates a sandbox."
        )
    if attach is not None and (cwd or user):
        raise typer.BadParameter("cannot be used with --cwd or --user: it has started already", param_hint="--attach")
    program = InteractiveProgram(sandbox_id, cwd=cwd, user=user, process_id=attach, detach_keys=detach_keys)
    run_interactive(session, program)


def run_interactive(session: CliSession, program: InteractiveProgram) -> None:
    """Run until it ends or is detached, and exit with its exit code."""
    if code := interact(session, program):
        raise typer.Exit(code)


def interact(session: CliSession, program: InteractiveProgram) -> int:
    import asyncio

    from paddock.cli.interactive import InteractiveSession

    return asyncio.run(InteractiveSession(session.async_client(), program).run())
