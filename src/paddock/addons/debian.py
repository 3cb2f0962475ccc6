"""Unpacks Debian packages into a directory instead of installing them: needs no root and does not change the host.

``apt-get`` runs with its own lists and state there, and with the host's sources and keys, so signatures are verified as
for any package of the host.
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
"""Number of progress steps of finding and unpacking packages."""


def available() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def unpack_packages(
    packages: Sequence[str],
    target: Path,
    say: ProgressReporter,
    *,
    kept: Callable[[str], object],
    useless: re.Pattern[str],
) -> dict[str, str]:
    """Unpack those of the packages and their dependencies that are ``kept``, without ``useless`` directories, into a
    new directory. Returns the version of each."""
    target.mkdir()
    work = target.with_name(".apt")
    debian = Debian(work, say)
    found = {name: version for name, version in debian.find(packages).items() if kept(name)}
    debian.unpack(list(found), target, lambda path: useless.fullmatch(path) is None)
    shutil.rmtree(work)
    return found


class Debian:
    """``folder`` contains apt's own files, to be deleted afterwards."""

    def __init__(self, folder: Path, say: ProgressReporter) -> None:
        if not available():
            raise errors.Unsupported("This needs a Debian or Ubuntu server, for its apt-get.")
        self._folder = folder
        self._say = say
        for name in ("state/lists/partial", "cache/archives/partial", "debs"):
            (folder / name).mkdir(parents=True)
        # No package counts as installed, so that all dependencies are listed: templates may have fewer packages than
        # the host.
        (folder / "state/status").touch()

    def find(self, packages: Sequence[str]) -> dict[str, str]:
        """Names and versions of these packages and all their dependencies."""
        self._say.step("reading Debian's lists of packages")
        self._apt("update", "-qq")
        said = self._apt("install", "-y", "--no-install-recommends", "--print-uris", *packages)
        return {found["name"]: found["version"].replace("%3a", ":") for found in _LINE.finditer(said)}

    def unpack(self, names: Sequence[str], target: Path, wanted: Callable[[str], bool]) -> None:
        """``wanted`` decides by its path whether a directory is kept."""
        self._say.step(f"getting {len(names)} packages from Debian")
        debs = self._folder / "debs"
        self._apt("download", "-qq", *names, folder=debs)
        found = sorted(debs.glob("*.deb"))
        if len(found) != len(names):
            raise errors.AddonFailed(f"apt-get downloaded {len(found)} of {len(names)} packages.")
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
    """Make absolute symlinks point to the file unpacked beside them, if there is one."""
    for path in root.rglob("*"):
        if path.is_symlink() and (target := path.readlink()).is_absolute():
            unpacked = root / target.relative_to("/")
            if unpacked.exists() or unpacked.is_symlink():
                path.unlink()
                path.symlink_to(os.path.relpath(unpacked, path.parent))
