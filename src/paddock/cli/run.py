"""``paddock run``: runs a command in a sandbox of its own, which is deleted when the command ends."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from paddock.cli import create_options, output
from paddock.cli.arguments import Action
from paddock.cli.exec import STILL_RUNNING, ExecRequest
from paddock.cli.session import CliSession, command


@command
def run(
    session: CliSession,
    words: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="Command; a single argument is run by a shell.")
    ],
    new: create_options.CreateOptions,
    idle_timeout: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="With --keep: idle seconds before it is paused.")
    ] = None,
    on_timeout: Annotated[
        Action | None, typer.Option(help="With --keep: action at the timeout. [default: pause]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop waiting after this time; deletes the sandbox, unless --keep."),
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Forward standard input.")] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Run it on this terminal: keys, colours, size. Implies -i.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the sandbox, and print its id.")] = False,
) -> None:
    """Create a sandbox, run a command in it, and delete it."""
    if (interactive or tty) and session.json:
        raise typer.BadParameter("cannot be used with --json", param_hint="--tty" if tty else "--interactive")
    if tty:
        if timeout is not None:
            raise typer.BadParameter("cannot be used with --timeout", param_hint="--tty")
        from paddock.cli.terminal import require_terminal

        require_terminal()  # before the sandbox is created
    if on_timeout and not keep:
        raise typer.BadParameter("only valid with --keep", param_hint="--on-timeout")
    # If this program dies, a sandbox without --keep is deleted by its timeout.
    wanted = new.request(timeout=idle_timeout, on_timeout=on_timeout if keep else "delete")
    line = words[0] if len(words) == 1 else shlex.join(words)
    if session.json:
        wanted |= {"command": line, "command_timeout": timeout}
    with _sandbox(session, keep, wanted) as box:
        if session.json:
            output.print_json(box)
            code = STILL_RUNNING if box.command is None or box.command.exit_code is None else box.command.exit_code
        elif tty:
            code = _on_terminal(session, box.sandbox_id, line, keep)
        else:
            code = _watched(session, ExecRequest(box.sandbox_id, line, None, None, None, timeout, None, interactive))
    if code:
        raise typer.Exit(code)


@contextmanager
def _sandbox(session: CliSession, keep: bool, wanted: dict[str, Any]) -> Iterator[Any]:
    """Create a sandbox; it is deleted at the end of the context, unless it is to be kept."""
    box = session.client.create_sandbox(**wanted)
    try:
        yield box
    finally:
        if not keep:
            session.client.delete_sandbox(box.sandbox_id)
        elif not session.json:
            output.note(f"Kept: {box.sandbox_id}")


def _watched(session: CliSession, wanted: ExecRequest) -> int:
    client = session.async_client()
    import asyncio

    from paddock.cli.attached import AttachedProcess

    return asyncio.run(AttachedProcess(client, wanted).run())


def _on_terminal(session: CliSession, sandbox_id: str, line: str, keep: bool) -> int:
    from paddock.cli.interactive import InteractiveProgram
    from paddock.cli.shell import interact

    # If the sandbox is deleted at the end, the program cannot be detached.
    return interact(session, InteractiveProgram(sandbox_id, line, detach_keys="ctrl-]" if keep else ""))
