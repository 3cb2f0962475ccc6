"""Events, usage and the health of the server."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from paddock import __version__
from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.session import CliSession, command

if TYPE_CHECKING:
    from paddock.client import Event
    from paddock.client.answers import Usage

PAGE = 500


@command
def events(
    session: CliSession,
    sandbox_id: SandboxId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new events, until Ctrl-C.")] = False,
    after: Annotated[int, typer.Option(metavar="SEQ", help="Only events after this number.")] = 0,
) -> None:
    """Show a sandbox's events. With --follow, --json prints one document per line."""
    if follow:
        for event in session.client.stream_events(sandbox_id, after=after):
            output.print_line_json(event) if session.json else output.print_text(_line(event))
        return
    found: list[Event] = []
    while page := session.client.events(sandbox_id, after=after, limit=PAGE):
        found += page.events
        after = page.next_after
        if len(page.events) < PAGE:
            break
    session.answer(
        {"events": found, "next_after": after},
        lambda: output.print_text("\n".join(map(_line, found))) if found else output.note("Nothing happened yet."),
    )


@command
def usage(
    session: CliSession,
    sandbox_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this sandbox.")] = None,
    user_id: Annotated[str | None, typer.Option(help="Only this user.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="First day (2030-01-31).")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Last day.")] = None,
) -> None:
    """Show running time, commands and traffic."""
    if sandbox_id:
        used = session.client.get_sandbox_usage(sandbox_id)
    else:
        used = session.client.get_usage(user_id, since=since, until=until)
    session.answer(used, lambda: _show_usage(used))


@command
def health(session: CliSession) -> None:
    """Check the server's health."""
    state = session.client.health()
    session.answer(
        state,
        lambda: output.print_fields(
            {
                "server": f"{output.escape(session.client.server_url)}  {output.state(state.status)}",
                "version": output.escape(state.version),
                "provider": output.escape(state.provider),
                "database": state.database,
                "pool": f"{state.pool.ready} ready of {state.pool.wanted}" if state.pool else "",
            }
        ),
    )
    if state.status != "ok":
        raise typer.Exit(1)


@command
def version(session: CliSession) -> None:
    """Print this program's version."""
    session.answer({"version": __version__}, lambda: print(__version__))


def _line(event: Event) -> str:
    data = " ".join(f"{name}={value!r}" for name, value in event.data.items())
    return f"{event.seq:>4}  {output.local_time(event.at)}  {event.type:<18}  {data}".rstrip()


def _show_usage(used: Usage) -> None:
    rows = chain(used.rows, [used.total] if len(used.rows) != 1 else [])
    output.print_table(
        ("USER", "SANDBOX", "DAY", "RUNNING", "COMMANDS", "IN", "OUT"),
        (
            (
                row.user_id if row is not used.total else "[bold]total[/]",
                row.sandbox_id or "",
                row.day or "",
                output.span(row.seconds),
                str(row.commands),
                output.size(row.bytes_in),
                output.size(row.bytes_out),
            )
            for row in rows
        ),
    )
