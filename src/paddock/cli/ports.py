"""Ports of a sandbox: their URLs, printed or opened in a browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.session import CliSession, command
from paddock.errors import Conflict, Invalid


@command
def url(
    session: CliSession,
    sandbox_id: SandboxId,
    port: Annotated[int, typer.Argument(min=1, max=65535, help="A port inside the sandbox.")],
    program: Annotated[bool, typer.Option("--program", help="The URL for programs instead.")] = False,
) -> None:
    """Print the URL of a port for a browser, and on standard error the URL for programs."""
    urls = session.client.get_port_urls(sandbox_id, port)
    for_programs = urls.program_url or urls.url
    session.answer(urls, lambda: output.print_text(for_programs if program else urls.url))
    if for_programs != urls.url and not (program or session.json):
        output.note(f"For programs such as curl or Python: {for_programs}")


@command
def open_(
    session: CliSession,
    sandbox_id: SandboxId,
    port: Annotated[
        int | None,
        typer.Argument(metavar="[PORT]", min=1, max=65535, help="A port inside the sandbox. [default: the one in use]"),
    ] = None,
) -> None:
    """Open a port in the browser. Prints the URL if there is no browser."""
    urls = session.client.get_port_urls(sandbox_id, _only_port(session, sandbox_id) if port is None else port)
    opened = _open_in_browser(urls.url)
    document = {**urls, "opened": opened}
    shown = f"Opened port {urls.port} of {sandbox_id} in the browser."
    session.answer(document, lambda: output.note(shown) if opened else output.print_text(urls.url))


def _only_port(session: CliSession, sandbox_id: str) -> int:
    """The only port that is listened on or belongs to a service."""
    used = {each.port: each.name for each in session.client.list_services(sandbox_id)}
    listening = session.client.call_tool(sandbox_id, "port_list", {}).data or {}
    used = {each["port"]: each.get("process") or "" for each in listening.get("ports", ())} | used
    if not used:
        raise Conflict(f"Nothing listens in {sandbox_id!r}, and it has no services. Start a server in it first.")
    if len(used) > 1:
        names = ", ".join(f"{number} ({name})" if name else str(number) for number, name in sorted(used.items()))
        raise Invalid(f"Which port? Give one of {names}: `paddock open {sandbox_id} {min(used)}`.")
    return next(iter(used))


def _open_in_browser(url: str) -> bool:
    """Use a browser only if one is configured or a display exists: a text browser would take over the terminal."""
    if sys.platform == "linux" and not any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))):
        return False
    import webbrowser

    return webbrowser.open(url)
