"""Container images of this machine's local provider: fetched from registries and files, without an engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.session import CliSession, command
from paddock.errors import Unsupported

if TYPE_CHECKING:
    from paddock.images.pull import Hear, Progress
    from paddock.images.reference import Reference
    from paddock.images.service import Images
    from paddock.images.store import NamedImage

Name = Annotated[str, typer.Argument(metavar="IMAGE", help="Image, such as python:3.12 or ghcr.io/team/app:1.0.")]


@command
def pull(
    session: CliSession,
    name: Name,
    platform: Annotated[str | None, typer.Option(metavar="OS/ARCH", help="Platform. [default: this machine's]")] = None,
) -> None:
    """Fetch an image from its registry. What is there already is not fetched again, and a pull that was stopped
    continues where it ended."""
    import asyncio

    from paddock.images.manifest import Platform

    images = _images(session)
    wanted = Platform.parse(platform) if platform else None
    with _reporter(session, f"Pulling {name}") as hear:
        found = asyncio.run(images.pull(_reference(name), hear, wanted))
    _done(session, [found])


@command
def import_(
    session: CliSession,
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="OCI layout (directory or tar), or what `docker save` wrote.")
    ],
    name: Annotated[str | None, typer.Option("--name", metavar="IMAGE", help="Name. [default: as in the file]")] = None,
) -> None:
    """Take the images of a file."""
    import asyncio

    images = _images(session)
    with _reporter(session, f"Importing {path.name}") as hear:
        found = asyncio.run(images.import_file(path, _reference(name) if name else None, hear))
    _done(session, found)


@command
def export(
    session: CliSession,
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")],
) -> None:
    """Write an image as an OCI archive, which `docker load` reads as well."""
    _images(session).export_file(_reference(name), path)
    session.answer({"success": True, "path": str(path)}, lambda: output.note(f"Written: {output.escape(path)}"))


@command
def list_(session: CliSession) -> None:
    """List images. SIZE counts layers that several images share for each of them."""
    found = _images(session).every()
    rows = (
        (
            output.escape(one.reference.familiar),
            one.digest.partition(":")[2][:12],
            output.size(one.size) if one.complete else "incomplete",
            str(one.sandboxes),
            output.ago(_time(one.pulled_at)),
        )
        for one in found
    )
    answer = [
        {
            "reference": str(one.reference),
            "digest": one.digest,
            "size": one.size,
            "complete": one.complete,
            "sandboxes": one.sandboxes,
            "pulled_at": _time(one.pulled_at),
        }
        for one in found
    ]
    columns = ("IMAGE", "DIGEST", "SIZE", "SANDBOXES", "PULLED")
    session.answer({"images": answer}, lambda: output.print_table(columns, rows))


@command
def show(session: CliSession, name: Name) -> None:
    """Show what an image consists of and what its author configured."""
    document = _document(_images(session).get(_reference(name)))
    session.answer(
        document,
        lambda: output.print_fields(
            {key: _shown(value) for key, value in document.items() if value not in ("", [], {})}
        ),
    )


@command
def remove(
    session: CliSession, names: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Images to remove.")]
) -> None:
    """Remove images. What a sandbox or another image needs of them stays until nothing needs it."""
    removed = _images(session).remove([_reference(name) for name in names])
    session.answer(
        {"success": True, **asdict(removed)}, lambda: output.note(f"Removed; {output.size(removed.bytes)} are free.")
    )


@command
def prune(
    session: CliSession,
    unused: Annotated[bool, typer.Option("--all", help="Remove every image that no sandbox uses.")] = False,
) -> None:
    """Remove layers and downloads that no image and no sandbox needs."""
    removed = _images(session).prune(unused=unused)
    session.answer(
        {"success": True, **asdict(removed)}, lambda: output.note(f"Removed; {output.size(removed.bytes)} are free.")
    )


def _images(session: CliSession) -> Images:
    if session.server or os.environ.get("PADDOCK_URL"):
        raise Unsupported(
            "Images are managed on the server's own machine: run this there, without --server and PADDOCK_URL."
        )
    from paddock.images.service import Images
    from paddock.settings import Settings

    return Images(Settings())


def _reference(name: str) -> Reference:
    from paddock.images.reference import Reference

    return Reference.parse(name)


def _done(session: CliSession, found: list[NamedImage]) -> None:
    names = ", ".join(output.escape(one.reference.familiar) for one in found)
    session.answer(
        {"success": True, "images": [_document(one) for one in found]},
        lambda: output.note(f"{names}: {len(found[0].image.layers)} layers, {output.size(found[0].image.size)}."),
    )


def _document(found: NamedImage) -> dict[str, Any]:
    config = found.image.config
    return {
        "reference": str(found.reference),
        "digest": found.image.digest,
        "platform": str(config.platform),
        "size": found.image.size,
        "layers": [layer.diff_id for layer in found.image.layers],
        "created": config.created,
        "pulled_at": _time(found.pulled_at),
        "env": dict(config.env),
        "user": config.user,
        "workdir": config.workdir,
        "entrypoint": list(config.entrypoint),
        "cmd": list(config.cmd),
        "exposed_ports": list(config.exposed_ports),
        "healthcheck": list(config.healthcheck),
        "labels": dict(config.labels),
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}={each}" for key, each in value.items())
    return " ".join(value) if isinstance(value, list) else str(value)


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@contextmanager
def _reporter(session: CliSession, what: str) -> Iterator[Hear]:
    """On a terminal a bar; with --json every change as an object on standard error; otherwise nothing."""
    if session.json:
        yield lambda progress: print(json.dumps(asdict(progress)), file=sys.stderr, flush=True)
        return
    console = output.console(stderr=True)
    if not console.is_terminal:
        yield lambda progress: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(output.escape(what), total=None)

        def hear(progress: Progress) -> None:
            unpacked = f" ({progress.unpacked} of {progress.layers} layers unpacked)" if progress.layers else ""
            bars.update(
                task,
                description=output.escape(what) + unpacked,
                total=progress.size or None,
                completed=progress.downloaded,
            )

        yield hear


image = typer.Typer(
    help="Container images that local sandboxes start from.", no_args_is_help=True, rich_markup_mode=None
)
image.command("pull")(pull)
image.command("list")(list_)
image.command("show")(show)
image.command("rm")(remove)
image.command("prune")(prune)
image.command("import")(import_)
image.command("export")(export)
