"""Add-ons of this server: large programs that its local sandboxes see, installed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.addons import NAMES
from paddock.cli import output
from paddock.cli.session import Session, command
from paddock.cli.template import saying
from paddock.errors import AddonNotFound

if TYPE_CHECKING:
    from paddock.addons.recipe import Recipe
    from paddock.addons.shelf import Shelf

Name = Annotated[str, typer.Argument(help=f"Which one: {' or '.join(NAMES)}.")]


@command
def list_(session: Session) -> None:
    """List the add-ons, and which of them are installed."""
    found = {name: _shelf().installed(name) for name in NAMES}
    rows = [
        (name, one.version if one else "not installed", f"{one.size >> 20} MB" if one else "", _recipe(name).summary)
        for name, one in found.items()
    ]
    answer = {
        "addons": [
            {"name": name, "installed": one is not None, "version": one and one.version, "size": one and one.size}
            for name, one in found.items()
        ]
    }
    session.answer(answer, lambda: output.print_table(("ADD-ON", "VERSION", "SIZE", "WHAT IT IS"), rows))


@command
def install(
    session: Session,
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="With its own Chromium and Node.js, even where this machine has them.")
    ] = False,
) -> None:
    """Install an add-on, or its newest version. Takes a minute or two; needs npm."""
    recipe = _recipe(name, full=full)
    with saying(f"Installing {name}") as say:
        made = _shelf().install(recipe, say)
    parts = ", ".join(f"{part} {version}" for part, version in made.parts.items())
    session.answer(
        {"success": True, "name": name, "version": made.version, "size": made.size},
        lambda: output.note(f"Installed ({output.escape(parts)}; {made.size >> 20} MB). Sandboxes see it from now on."),
    )


@command
def remove(session: Session, name: Name) -> None:
    """Remove an add-on. What sandboxes run of it at this moment may break."""
    _shelf().remove(name)
    session.answer({"success": True}, lambda: output.note("Removed."))


def _shelf() -> Shelf:
    from paddock.addons.shelf import Shelf
    from paddock.settings import Settings

    return Shelf(Settings().home / "addons")


def _recipe(name: str, *, full: bool = False) -> Recipe:
    from paddock.addons.browser import Browser
    from paddock.addons.vscode import VsCode

    if name == Browser.name:
        return Browser(full=full)
    if name == VsCode.name:
        return VsCode()
    raise AddonNotFound(f"There is no add-on {name[:80]!r}. There are: {', '.join(NAMES)}.")


addon = typer.Typer(
    help="Large programs for sandboxes: a browser, VS Code.", no_args_is_help=True, rich_markup_mode=None
)
addon.command("list")(list_)
addon.command("install")(install)
addon.command("remove")(remove)
