"""Installs npm packages exactly as in a lock file: npm verifies each against the lock's checksum."""

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
    """Install the packages of this add-on's lock into ``folder``, without running their scripts."""
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


def install_nested(folder: Path, say: ProgressReporter) -> None:
    """Install a package's own dependencies by the versions and checksums of the lock file that it contains."""
    # Not `ci`, which rejects code-server's lock because it omits packages that its build excluded.
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
    """This machine's platform in npm's naming."""
    try:
        return _MACHINES[platform.machine()]
    except KeyError:
        raise errors.Unsupported(f"There is no add-on for {platform.machine()} machines.") from None


def _link_node(folder: Path) -> None:
    """Provide Node.js as ``bin/node``, so that the sandbox needs none."""
    program = Path("node_modules", f"node-linux-{machine()}", "bin/node")
    if not (folder / program).is_file():
        raise errors.AddonFailed("npm did not install the Node.js of the lock file.")
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/node").symlink_to(Path("..", program))
