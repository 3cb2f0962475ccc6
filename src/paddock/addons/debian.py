"""Debian's packages, unpacked into a folder instead of installed: needs no root, and changes nothing on the host.

``apt-get`` works on lists and a state of its own there, with the host's sources and keys; so what it brings is signed
and checked like any package of the host.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paddock import errors
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import run

_LINE = re.compile(r"^'(?P<url>[^']+)' (?P<file>(?P<name>[^_\s]+)_(?P<version>[^_\s]+)_\S+\.deb) ", re.MULTILINE)
_TRIES = ("-o", "Acquire::Retries=3")
STEPS = 3
"""What finding packages and unpacking them tells of."""


def available() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


class Debian:
    """``folder`` is for apt's own files, to be thrown away afterwards."""

    def __init__(self, folder: Path, say: ProgressReporter) -> None:
        if not available():
            raise errors.Unsupported("This needs a Debian or Ubuntu server, for its apt-get.")
        self._folder = folder
        self._say = say
        for name in ("state/lists/partial", "cache/archives/partial", "debs"):
            (folder / name).mkdir(parents=True)
        # Nothing counts as installed, so that everything a package needs is named, for templates that have less.
        (folder / "state/status").touch()

    def find(self, packages: Sequence[str]) -> dict[str, str]:
        """Name and version of these packages and all that they depend on."""
        self._say.step("reading Debian's lists of packages")
        self._apt("update", "-qq")
        said = self._apt("install", "-y", "--no-install-recommends", "--print-uris", *packages)
        return {found["name"]: found["version"].replace("%3a", ":") for found in _LINE.finditer(said)}

    def unpack(self, names: Sequence[str], target: Path, wanted: Callable[[str], bool]) -> None:
        """``wanted`` tells by its path whether a directory is kept."""
        self._say.step(f"getting {len(names)} packages from Debian")
        debs = self._folder / "debs"
        self._apt("download", "-qq", *names, folder=debs)
        found = sorted(debs.glob("*.deb"))
        if len(found) != len(names):
            raise errors.AddonFailed(f"apt-get brought {len(found)} of {len(names)} packages.")
        self._say.step("unpacking them")
        for number, deb in enumerate(found, 1):
            self._say(f"unpacking {deb.name.partition('_')[0]} ({number} of {len(found)})")
            run(["dpkg-deb", "-x", deb, target], self._folder, self._say)
            deb.unlink()
        for path in [path for path in target.rglob("*") if path.is_dir() and not path.is_symlink()]:
            if path.exists() and not wanted(path.relative_to(target).as_posix()):
                shutil.rmtree(path)

    def _apt(self, *words: str, folder: Path | None = None) -> str:
        place = self._folder.absolute()
        options = {
            "Dir::State": place / "state",
            "Dir::State::status": place / "state/status",
            "Dir::Cache": place / "cache",
            "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
            "Debug::NoLocking": "1",
        }
        own = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return run(["apt-get", *own, *_TRIES, *words], folder or place, self._say, env={"LC_ALL": "C"})


def make_links_relative(root: Path) -> None:
    """Links to a file of the whole system lead to the one that was unpacked beside them, where there is one."""
    for path in root.rglob("*"):
        if path.is_symlink() and (target := path.readlink()).is_absolute():
            unpacked = root / target.relative_to("/")
            if unpacked.exists() or unpacked.is_symlink():
                path.unlink()
                path.symlink_to(os.path.relpath(unpacked, path.parent))
