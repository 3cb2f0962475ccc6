"""Templates of the local provider, on this machine: ``host`` needs nothing, a Debian one is made on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from paddock.cli import output
from paddock.cli.session import Session, command
from paddock.errors import Invalid, TemplateNotFound

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@command
def list_(session: Session) -> None:
    """List the templates of this machine."""
    names = ["host", *(path.name for path in _found())]
    session.answer({"templates": names}, lambda: output.print_table(("TEMPLATE", "FOLDER"), _rows()))


@command
def build(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is called from then on.")] = "debian",
    suite: Annotated[str | None, typer.Option(help="The Debian release. [default: this machine's, or stable]")] = None,
    include: Annotated[list[str] | None, typer.Option(help="A package more. May be repeated.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Where packages come from. [default: as this machine]")] = None,
) -> None:
    """Make a Debian template with mmdebstrap. Takes a minute or two."""
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
def remove(session: Session, name: Annotated[str, typer.Argument(help="Which one.")]) -> None:
    """Remove a template. Sandboxes that stand on it must be gone."""
    from paddock.providers.ground import removal

    path = _folder() / name
    if not _NAME.fullmatch(name) or not path.is_dir():
        raise TemplateNotFound(f"There is no template {name[:80]!r} to remove.")
    gone = path.rename(path.with_name(f".{name}.removed"))
    removal.remove(gone)
    session.answer({"success": True}, lambda: output.note("Removed."))


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """The latest line of a long work, on a terminal; nothing elsewhere."""
    console = output.console(stderr=True)
    with console.status(what) as status:
        yield lambda line: status.update(f"{what}: {output.escape(line[:100])}")


def _folder() -> Path:
    from paddock.settings import Settings

    return Settings().home / "templates"


def _found() -> list[Path]:
    folder = _folder()
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name)) if folder.is_dir() else []


def _rows() -> list[tuple[str, str]]:
    return [("host", "/usr of this machine"), *((path.name, str(path)) for path in _found())]


template = typer.Typer(help="Root file systems that sandboxes start from.", no_args_is_help=True, rich_markup_mode=None)
template.command("list")(list_)
template.command("build")(build)
template.command("remove")(remove)
