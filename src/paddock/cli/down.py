"""``paddock down``: stops the server of this home."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.configuration import load_settings
from paddock.cli.session import CliSession, command
from paddock.errors import Conflict, Invalid, PaddockError, SandboxNotFound, Unavailable

if TYPE_CHECKING:
    from paddock.cli.server_process import ServerProcess
    from paddock.client import SyncSandboxClient
    from paddock.settings import Settings

_MARGIN_S = 60.0
"""Added to the server's own drain timeout."""
_MAX_CONCURRENT_DELETES = 8
_MAX_ROUNDS = 5
Home = Annotated[Path | None, typer.Option(metavar="DIR", help="The server's home. [env: PADDOCK_HOME]")]


@command
def down(
    session: CliSession,
    sandboxes: Annotated[bool, typer.Option("--sandboxes", help="First delete its sandboxes, of all users.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    home: Home = None,
) -> None:
    """Stop the server on this machine. Sandboxes keep running, unless --sandboxes is given."""
    from paddock.cli.server_process import ServerProcess

    settings = load_settings(PADDOCK_HOME=home)
    server = ServerProcess.find(settings.home)
    if server is None:
        _none_runs(session, settings, sandboxes)
        return
    with server, _client(server, settings) as client:
        deleted = 0
        if sandboxes:
            count = len(_live_sandboxes(client))
            confirm(session, yes, f"This deletes {_sandboxes(count)} with all their files, and stops the server.")
            deleted = _delete_all(client)
        left = _count_by_state(client)
        stop(server, settings)
    document = {"success": True, "stopped": server.pid, "deleted": deleted, "left": left}
    session.answer(document, lambda: _tell(server, deleted, left))


def stop(server: ServerProcess, settings: Settings) -> None:
    if not server.stop(settings.drain_timeout * 2 + _MARGIN_S):
        raise Unavailable(
            f"The server (process {server.pid}) has been asked to stop and has not yet. It may still be finishing "
            f"requests; `kill -9 {server.pid}` ends it at once; its sandboxes keep running then, too."
        )


def confirm(session: CliSession, yes: bool, what: str) -> None:
    """Continue only after confirmation."""
    if yes:
        return
    if session.json or not sys.stdin.isatty():
        between = "\n" if "\n" in what else " "
        raise Invalid(f"{what}{between}Confirm with --yes, because there is no terminal to ask on.")
    output.note(what)
    if not typer.confirm("Go on?", err=True):
        raise typer.Exit(1)


def _none_runs(session: CliSession, settings: Settings, sandboxes: bool) -> None:
    from paddock.server.context import AlreadyRunning, ensure_free

    try:
        ensure_free(settings)
    except AlreadyRunning:
        raise Conflict(f"A server is just starting or stopping on {settings.home}: try again in a moment.") from None
    if sandboxes:
        raise Conflict(
            f"No server runs on {settings.home}, so its sandboxes cannot be deleted: start it with "
            "`paddock up`, or remove everything with `paddock destroy`."
        )
    document = {"success": True, "stopped": None, "deleted": 0, "left": None}
    session.answer(document, lambda: output.note(f"No server runs on {settings.home}."))


def _client(server: ServerProcess, settings: Settings) -> SyncSandboxClient:
    try:
        key = settings.key_file.read_text().strip()
    except OSError:
        key = None
    with output.importing():
        from paddock.client import SyncSandboxClient

        return SyncSandboxClient(server.url, api_key=key)


def _live_sandboxes(client: SyncSandboxClient) -> list[Any]:
    """Live sandboxes of this home. Servers that share a database have sandboxes of their own, which are not deleted."""
    return list(client.iter_sandboxes(here=True))


def _delete_all(client: SyncSandboxClient) -> int:
    """Delete all sandboxes, including those created meanwhile."""
    deleted: set[str] = set()

    def delete(sandbox_id: str) -> None:
        with suppress(SandboxNotFound):
            client.delete_sandbox(sandbox_id)

    for _ in range(_MAX_ROUNDS):
        found = [box.sandbox_id for box in _live_sandboxes(client)]
        if not found:
            return len(deleted)
        with ThreadPoolExecutor(_MAX_CONCURRENT_DELETES) as pool:
            list(pool.map(delete, found))
        deleted.update(found)
    raise Conflict("Sandboxes are made as fast as they are deleted. The server runs on; try again.")


def _count_by_state(client: SyncSandboxClient) -> dict[str, int] | None:
    """Number of sandboxes that keep running, by state. None if the server does not answer: the stop goes on anyway."""
    try:
        return dict(Counter(box.status.value for box in _live_sandboxes(client)))
    except PaddockError:
        return None


def _tell(server: ServerProcess, deleted: int, left: dict[str, int] | None) -> None:
    gone = f" {_sandboxes(deleted)} deleted." if deleted else ""
    print(f"The server (process {server.pid}) has stopped.{gone}")
    if left is None:
        print("Its sandboxes keep running; the next `paddock up` finds them.")
    elif left:
        states = ", ".join(f"{count} {name}" for name, count in sorted(left.items()))
        print(
            f"{_sandboxes(sum(left.values()))} still here ({states}): the next `paddock up` finds them. "
            "`paddock destroy` removes everything."
        )


def _sandboxes(count: int) -> str:
    return "1 sandbox" if count == 1 else f"{count} sandboxes"
