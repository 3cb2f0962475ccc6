"""``paddock destroy``: removes everything in a home."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli import output
from paddock.cli.configuration import describe, load_settings
from paddock.cli.down import Home, confirm, stop
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.cli.server_process import ServerProcess
    from paddock.server.teardown import HomeInventory


@command
def destroy(
    session: CliSession,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    home: Home = None,
) -> None:
    """Delete everything of this server: sandboxes, disks, database, key. Asks first."""
    import asyncio

    from paddock.api.logging import configure_logging
    from paddock.cli.server_process import ServerProcess
    from paddock.server.context import ensure_free
    from paddock.server.teardown import end_machines, remove_files, require_home, take_inventory

    settings = load_settings(PADDOCK_HOME=home, PADDOCK_LOG_LEVEL="error")
    configure_logging(settings)
    require_home(settings.home)
    with ExitStack() as held:
        if (server := ServerProcess.find(settings.home)) is not None:
            held.enter_context(server)
        try:
            inventory = asyncio.run(take_inventory(settings))
            confirm(session, yes, _summary(inventory, server))
            if server is not None:
                stop(server, settings)
            ensure_free(settings)
            count = asyncio.run(end_machines(settings))
            inventory = asyncio.run(take_inventory(settings))
        except ValueError as error:  # a provider used by this home is not available
            raise Invalid(f"Nothing was removed. {describe(error)}") from error
        remove_files(inventory)
    document = {
        "success": True,
        "home": str(settings.home),
        "sandboxes": count,
        "stopped": server.pid if server else None,
        "left": [str(path) for path in inventory.strangers],
    }
    session.answer(document, lambda: _tell(inventory, count))


def _summary(inventory: HomeInventory, server: ServerProcess | None) -> str:
    lines = [f"This removes everything of Paddock in {inventory.home}, and cannot be undone:"]
    if server is not None:
        lines.append(f"- the server (process {server.pid}) is stopped")
    for name, ids in inventory.sandboxes.items():
        some = ", ".join(list(ids)[:5]) + (" …" if len(ids) > 5 else "")
        noun = "sandbox" if len(ids) == 1 else "sandboxes"
        lines.append(f"- {len(ids)} {noun} of {name}{f' ({some})' if ids else ''}, with all files, and the warm pool")
    lines.append(f"- {', '.join(path.name for path in inventory.entries)}")
    lines += [f"Kept: {outside}." for outside in inventory.outside]
    if inventory.strangers:
        lines.append(f"Kept, because it is not Paddock's: {', '.join(path.name for path in inventory.strangers)}.")
    return "\n".join(lines)


def _tell(inventory: HomeInventory, count: int) -> None:
    print(f"Removed: {'1 sandbox' if count == 1 else f'{count} sandboxes'}, and all of Paddock in {inventory.home}.")
    if inventory.strangers:
        output.note(f"Kept, because it is not Paddock's: {', '.join(str(path) for path in inventory.strangers)}")
    for outside in inventory.outside:
        output.note(f"Left: {outside}.")
