"""Templates of the server's providers, and Debian templates built for the local provider on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid, PaddockError, TemplateNotFound

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@command
def list_(session: CliSession) -> None:
    """List the templates of all providers, Docker images included."""
    found: list[Mapping[str, Any]]
    try:
        found = [dict(one) for one in session.client.list_templates()]
    except PaddockError as error:
        # Templates of the local provider are directories, which can be listed without a server.
        if error.code != "server_unreachable" or session.server:
            raise
        output.note("No server answers: these are the templates of this machine's local provider.")
        names = ["host", *(path.name for path in _found())]
        found = [{"template_id": name, "provider": "local", "default": name == "host"} for name in names]
    rows = ((output.escape(one["template_id"]), one["provider"], "default" if one["default"] else "") for one in found)
    session.answer({"templates": found}, lambda: output.print_table(("TEMPLATE", "PROVIDER", ""), rows))


@command
def build(
    session: CliSession,
    name: Annotated[str, typer.Argument(help="Name of the new template.")] = "debian",
    suite: Annotated[str | None, typer.Option(help="Debian release. [default: this machine's, or stable]")] = None,
    include: Annotated[list[str] | None, typer.Option(help="Additional package. May be repeated.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Package mirror. [default: as this machine]")] = None,
) -> None:
    """Build a Debian template with mmdebstrap. Takes a minute or two."""
    if not _NAME.fullmatch(name) or name == "host":
        raise Invalid(f"{name[:80]!r} cannot be the name of a template: small letters, digits, `.`, `_` and `-`.")
    from paddock.providers.local import debian

    target = _folder() / name
    with saying(f"Making template {name}") as say:
        debian.build(target, suite=suite, packages=include or [], mirror=mirror, say=say)
    session.answer(
        {"success": True, "template_id": name}, lambda: output.note(f"Made. Try: paddock create --template {name}")
    )


@command
def remove(session: CliSession, name: Annotated[str, typer.Argument(help="Name of the template.")]) -> None:
    """Remove a template. No sandbox may be using it."""
    from paddock import removal

    path = _folder() / name
    if not _NAME.fullmatch(name) or not path.is_dir():
        raise TemplateNotFound(f"There is no template {name[:80]!r} to remove.")
    gone = path.rename(path.with_name(f".{name}.removed"))
    removal.remove(gone)
    session.answer({"success": True}, lambda: output.note("Removed."))


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """Show the latest line of a long operation on a terminal; nothing elsewhere."""
    console = output.console(stderr=True)
    with console.status(what) as status:
        yield lambda line: status.update(f"{what}: {output.escape(line[:100])}")


def _folder() -> Path:
    from paddock.settings import Settings

    return Settings().home / "templates"


def _found() -> list[Path]:
    folder = _folder()
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)) if folder.is_dir() else []


template = typer.Typer(help="Root file systems that sandboxes start from.", no_args_is_help=True, rich_markup_mode=None)
template.command("list")(list_)
template.command("build")(build)
template.command("remove")(remove)
