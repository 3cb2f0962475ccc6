"""The root file system used by both Paddock's sandboxes and Docker's containers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.local_server import Template
from benchmarks.tables import progress
from paddock import errors
from paddock.providers.local import debian
from paddock.settings import default_home


def find_template(given: Path | None, base: Path) -> Template:
    """The given directory, or the user's own Debian, or one built for this run; otherwise the host's system."""
    if given is not None:
        if not (given / "bin/echo").exists():
            raise SystemExit(f"{given} is not a root file system")
        return Template(given.name, given.absolute())
    own = default_home() / "templates" / "debian"
    if own.is_dir():
        return Template(own.name, own)
    target = base / "templates" / "debian"
    try:
        with progress.status("making a Debian root file system (--template spares this)"):
            debian.build(target, suite=None, packages=(), mirror=None, say=lambda line: None)
    except errors.PaddockError as error:
        progress.print(f"No root file system of its own: {error.message}")
        return Template()
    return Template(target.name, target)
