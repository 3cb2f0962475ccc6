"""Packages from npm, exactly those of a lock file: npm compares each with the checksum that is written there."""

from __future__ import annotations

import json
import platform
import shutil
from importlib.resources import files
from pathlib import Path

from paddock import errors
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import run

_QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


def install(name: str, folder: Path, say: ProgressReporter, *, own_node: bool) -> None:
    """The packages of this add-on's lock into ``folder``. No script of theirs is run."""
    npm = require()
    for file in ("package.json", "package-lock.json"):
        text = files("paddock.addons").joinpath("locks", name, file).read_text()
        (folder / file).write_text(text)
    say.step("getting packages from npm")
    run([npm, "ci", "--ignore-scripts", *_QUIET, *([] if own_node else ["--omit=optional"])], folder, say)
    if own_node:
        _link_node(folder)


def lock(name: str) -> str:
    return files("paddock.addons").joinpath("locks", name, "package-lock.json").read_text()


def again(folder: Path, say: ProgressReporter) -> None:
    """The packages that a package names itself, by the versions and checksums of the lock that it brings."""
    # Not `ci`, which refuses the lock of code-server: it leaves out what its own build left out.
    run([require(), "install", "--omit=dev", "--ignore-scripts", *_QUIET], folder, say)


def version(folder: Path, package: str) -> str:
    found = json.loads((folder / "node_modules" / package / "package.json").read_text())
    return str(found["version"])


def require() -> str:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise errors.Unsupported(
            "This needs Node.js and npm on the server (Debian and Ubuntu: apt install nodejs npm)."
        )
    return npm


def machine() -> str:
    """This machine in npm's words."""
    try:
        return _MACHINES[platform.machine()]
    except KeyError:
        raise errors.Unsupported(f"There is no add-on for {platform.machine()} machines.") from None


def _link_node(folder: Path) -> None:
    """Node as ``bin/node``, so that it needs none in the sandbox."""
    program = Path("node_modules", f"node-linux-{machine()}", "bin/node")
    if not (folder / program).is_file():
        raise errors.AddonFailed("npm did not bring the Node.js that the lock names.")
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/node").symlink_to(Path("..", program))
