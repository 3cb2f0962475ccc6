"""Add-ons of this server: large programs that its local sandboxes see, installed once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.addons import NAMES
from paddock.cli import output
from paddock.cli.session import Session, command
from paddock.errors import AddonNotFound

if TYPE_CHECKING:
    from paddock.addons.progress import Hear, Progress
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
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Make it anew, and not from the packed copy of an earlier installation.")
    ] = False,
) -> None:
    """Install an add-on, or its newest version. The first time takes a minute or two. With --json, standard error has
    its progress, an object to a line."""
    recipe = _recipe(name, full=full)
    with _told(session, name) as hear:
        made = _shelf().install(recipe, hear, fresh=fresh)
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


@contextmanager
def _told(session: Session, name: str) -> Iterator[Hear]:
    """On a terminal one line that changes; elsewhere a line for each step; with --json every change, as an object."""
    console = output.console(stderr=True)
    step = 0

    def hear(progress: Progress) -> None:
        nonlocal step
        if session.json:
            sys.stderr.write(json.dumps({"name": name, **asdict(progress)}) + "\n")
        elif console.is_terminal:
            status.update(f"Installing {name}: {output.escape(progress.text[:140])}")
        elif progress.step > step:
            sys.stderr.write(f"Installing {name}: {progress.text}\n")
        step = progress.step

    if session.json or not console.is_terminal:
        yield hear
        return
    with console.status(f"Installing {name}") as status:
        yield hear


def _shelf() -> Shelf:
    from paddock.addons.cache import Cache, default_folder
    from paddock.addons.shelf import Shelf
    from paddock.settings import Settings

    return Shelf(Settings().home / "addons", Cache(default_folder()))


def _recipe(name: str, *, full: bool = False) -> Recipe:
    from paddock.addons.browser import Browser
    from paddock.addons.code_interpreter import CodeInterpreter
    from paddock.addons.vscode import VsCode

    if name == Browser.name:
        return Browser(full=full)
    if name == CodeInterpreter.name:
        return CodeInterpreter()
    if name == VsCode.name:
        return VsCode()
    raise AddonNotFound(f"There is no add-on {name[:80]!r}. There are: {', '.join(NAMES)}.")


addon = typer.Typer(
    help="Large programs for sandboxes: a browser, VS Code, Python's data packages.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
addon.command("list")(list_)
addon.command("install")(install)
addon.command("remove")(remove)
