"""``paddock exec``: runs a command in a sandbox as if it were local.

Output goes to the matching descriptors as it is written, the exit code is passed on, Ctrl-C interrupts the remote
process, and a second Ctrl-C detaches from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from paddock.cli.arguments import SandboxId, pairs
from paddock.cli.session import CliSession, command

STILL_RUNNING = 124
"""As timeout(1) reports it."""
INTERRUPTED = 130
NOBODY_READS = 141
"""As a shell reports SIGPIPE."""


@dataclass(frozen=True, slots=True)
class ExecRequest:
    sandbox_id: str
    command: str
    cwd: str | None
    env: Mapping[str, str] | None
    user: str | None
    timeout: float | None
    hard_timeout: float | None
    interactive: bool


@command
def exec_(
    session: CliSession,
    sandbox_id: SandboxId,
    words: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="Command; a single argument is run by a shell.")
    ],
    cwd: Annotated[str | None, typer.Option(metavar="PATH", help="Working directory. [default: /workspace]")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Additional variable.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Run as: user or root.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop waiting after this time; the command keeps running.")
    ] = None,
    hard_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Kill the command after this time.")
    ] = None,
    background: Annotated[bool, typer.Option("--background", "-d", help="Do not wait; print the process id.")] = False,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Forward standard input.")] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Run it on this terminal: keys, colours, size. Implies -i.")
    ] = False,
    detach_keys: Annotated[
        str, typer.Option(metavar="KEYS", help="With -t: keys to detach and leave it running; '' for none.")
    ] = "ctrl-]",
) -> None:
    """Run a command in a sandbox."""
    wanted = ExecRequest(
        sandbox_id=sandbox_id,
        command=words[0] if len(words) == 1 else shlex.join(words),
        cwd=cwd,
        env=pairs(env, "--env"),
        user=user,
        timeout=timeout,
        hard_timeout=hard_timeout,
        interactive=interactive,
    )
    if (interactive or tty) and (background or session.json):
        hint = "--tty" if tty else "--interactive"
        raise typer.BadParameter("cannot be used with --background or --json", param_hint=hint)
    if tty:
        _run_on_terminal(session, wanted, detach_keys)
        return
    if background or session.json:
        _run_apart(session, wanted, background)
        return
    client = session.async_client()
    import asyncio

    from paddock.cli.attached import AttachedProcess

    if code := asyncio.run(AttachedProcess(client, wanted).run()):
        raise typer.Exit(code)


def _run_on_terminal(session: CliSession, wanted: ExecRequest, detach_keys: str) -> None:
    if wanted.timeout is not None:
        raise typer.BadParameter("cannot be used with --timeout: leave it with the detach keys", param_hint="--tty")
    from paddock.cli.interactive import InteractiveProgram
    from paddock.cli.shell import run_interactive

    program = InteractiveProgram(
        wanted.sandbox_id,
        wanted.command,
        cwd=wanted.cwd,
        env=wanted.env,
        user=wanted.user,
        hard_timeout=wanted.hard_timeout,
        detach_keys=detach_keys,
    )
    run_interactive(session, program)


def _run_apart(session: CliSession, wanted: ExecRequest, background: bool) -> None:
    result = session.client.run_command(
        wanted.sandbox_id,
        wanted.command,
        background,
        timeout=wanted.timeout,
        hard_timeout=wanted.hard_timeout,
        cwd=wanted.cwd,
        env=wanted.env,
        user=wanted.user,
    )
    session.answer(result, lambda: print(result.process_id))
    if not background:
        raise typer.Exit(STILL_RUNNING if result.exit_code is None else result.exit_code)
