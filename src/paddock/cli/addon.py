"""Add-ons of this server: large programs, installed once, that its local sandboxes share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.addons import NAMES
from paddock.cli import output
from paddock.cli.session import CliSession, command
from paddock.errors import AddonFailed

if TYPE_CHECKING:
    from paddock.addons.addon_store import AddonStore
    from paddock.addons.progress import Hear, Progress
    from paddock.addons.recipe import Recipe
    from paddock.models import AddonAnswer

Name = Annotated[str, typer.Argument(help=f"Add-on: {', '.join(NAMES)}.")]


@command
def list_(session: CliSession) -> None:
    """List add-ons and which of them are installed."""
    found = session.client.list_addons() if _is_remote(session) else [_local(name) for name in NAMES]
    rows = [
        (one.name, one.version or "not installed", f"{one.size >> 20} MB" if one.size else "", one.summary)
        for one in found
    ]
    answer = {"addons": [one.model_dump(include={"name", "installed", "version", "size"}) for one in found]}
    session.answer(answer, lambda: output.print_table(("ADD-ON", "VERSION", "SIZE", "WHAT IT IS"), rows))


@command
def install(
    session: CliSession,
    name: Name,
    full: Annotated[
        bool, typer.Option("--full", help="Include Chromium and Node.js even if this machine has them.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Build it again instead of using the cached package.")] = False,
) -> None:
    """Install an add-on, or its newest version: on the server given by --server or PADDOCK_URL, else on this
    machine. The first time takes a minute or two. With --json, progress is written to standard error, one JSON
    object per line."""
    with _reporter(session, name) as hear:
        made = _install_there(session, name, full, fresh, hear) if _is_remote(session) else None
        if made is None:
            _addon_store().install(_recipe(name, full=full), hear, fresh=fresh)
            made = _local(name)
    size = made.size or 0
    parts = ", ".join(f"{part} {version}" for part, version in made.parts.items())
    session.answer(
        {"success": True, "name": name, "version": made.version, "size": size},
        lambda: output.note(f"Installed ({output.escape(parts)}; {size >> 20} MB). Sandboxes see it from now on."),
    )


@command
def remove(session: CliSession, name: Name) -> None:
    """Remove an add-on. Programs of it that are running in sandboxes may fail."""
    if _is_remote(session):
        session.client.remove_addon(name)
    else:
        _addon_store().remove(name)
    session.answer({"success": True}, lambda: output.note("Removed."))


def _is_remote(session: CliSession) -> bool:
    """Whether a server was named; if not, add-ons of this machine's home are managed, with or without a running
    server."""
    return bool(session.server or os.environ.get("PADDOCK_URL"))


def _install_there(session: CliSession, name: str, full: bool, fresh: bool, hear: Hear) -> AddonAnswer:
    from paddock.addons.progress import Progress
    from paddock.client.answers import AddonEnded

    for event in session.client.stream_install_addon(name, full=full, fresh=fresh):
        if isinstance(event, AddonEnded):
            return event
        hear(Progress(event.step, event.steps, event.doing, event.detail, event.size))
    raise AddonFailed("The server did not report how the installation ended.")


def _local(name: str) -> AddonAnswer:
    from paddock.models import AddonAnswer

    found = _addon_store().installed(name)
    answer = AddonAnswer(name=name, summary=_recipe(name).summary, installed=found is not None)
    if found is not None:
        answer.version, answer.parts, answer.size = found.version, dict(found.parts), found.size
    return answer


@contextmanager
def _reporter(session: CliSession, name: str) -> Iterator[Hear]:
    """A single updating line on a terminal; one line per step elsewhere; with --json every change as an object."""
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


def _addon_store() -> AddonStore:
    from paddock.addons.addon_store import AddonStore
    from paddock.addons.cache import Cache, default_folder
    from paddock.settings import Settings

    return AddonStore(Settings().home / "addons", Cache(default_folder()))


def _recipe(name: str, *, full: bool = False) -> Recipe:
    from paddock.addons.recipes import recipe

    return recipe(name, full=full)


addon = typer.Typer(
    help="Large programs for sandboxes: a browser, VS Code, Python's data packages, R, Java.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
addon.command("list")(list_)
addon.command("install")(install)
addon.command("remove")(remove)
