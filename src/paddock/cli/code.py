"""``paddock run-code``: runs code in a sandbox, in a stateful context."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.arguments import SandboxId, pairs
from paddock.cli.session import CliSession, command


@command
def run_code(
    session: CliSession,
    sandbox_id: SandboxId,
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="Code to run; omitted or `-`: read from standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the code from a local file.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", "-l", help="Language: python, javascript, typescript, bash, r or java. [default: python]"
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="ID", help="Id of the context to run in.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Variable for this run only.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Interrupt the code after this time.")
    ] = None,
) -> None:
    """Run code in a sandbox. Its definitions are kept for the next run."""
    if code is not None and file is not None:
        raise typer.BadParameter("cannot be combined with CODE", param_hint="--file")
    source = file.read_text() if file else sys.stdin.read() if code in (None, "-") else code
    variables = pairs(env, "--env")
    if session.json:
        result = session.client.run_code(
            sandbox_id, source or "", language, context_id=context, timeout=timeout, env=variables
        )
        session.answer(result, lambda: None)
        if result.error is not None:
            raise typer.Exit(1)
        return
    _show(session, sandbox_id, source or "", language, context, timeout, variables)


def _show(
    session: CliSession,
    sandbox_id: str,
    source: str,
    language: str | None,
    context: str | None,
    timeout: float | None,
    env: dict[str, str] | None,
) -> None:
    failed = False
    happening = session.client.stream_code(sandbox_id, source, language, context_id=context, timeout=timeout, env=env)
    for event in happening:
        match event.type:
            case "output":
                stream = sys.stdout if event.stream == "stdout" else sys.stderr
                stream.write(event.data)
                stream.flush()
            case "result":
                print(event.text if event.text is not None else f"[{', '.join(sorted(event.formats))}]")
            case "exception":
                failed = True
                print(event.traceback or f"{event.name}: {event.value}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
