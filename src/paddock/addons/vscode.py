"""The add-on ``vscode``: code-server from npm, with the Node.js version that it requires.

Its install script would compile more than necessary and download a program from elsewhere, so its steps are done one by
one here. Native modules are compiled on this machine.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

from paddock import __version__, errors
from paddock.addons import npm
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon, run

_COMPILED = {
    "@vscode/spdlog": "build/Release/spdlog.node",
    "native-watchdog": "build/Release/watchdog.node",
    "node-pty": "build/Release/pty.node",
}
_LINKS = {
    "node_modules.asar": "node_modules",
    "bin/remote-cli/code-server": "code-linux.sh",
    "bin/helpers/browser.sh": "browser-linux.sh",
}
_START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/..
exec "$here/bin/node" "$here/node_modules/code-server/out/node/entry.js" "$@"
"""


class VsCode:
    name = "vscode"
    summary = "VS Code in the browser (code-server), on port 9000 of every sandbox."
    steps = 5 + len(_COMPILED)

    @property
    def cache_key(self) -> str | None:
        """All sources are in lock files; compiled modules depend on this machine's C library and the Node.js
        headers."""
        return "\n".join([__version__, npm.lock(self.name), npm.machine(), *platform.libc_ver()])

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        _require_compiler()
        npm.install(self.name, folder, say, own_node=True)
        server = folder / "node_modules/code-server"
        workbench = server / "lib/vscode"
        say.step("getting the packages of the workbench")
        npm.install_nested(workbench, say)
        say.step("getting the packages of its extensions")
        npm.install_nested(workbench / "extensions", say)
        _compile(folder, workbench, say)
        for name, target in _LINKS.items():
            (workbench / name).unlink(missing_ok=True)
            (workbench / name).symlink_to(target)
        _put_ripgrep(folder, workbench)
        start = folder / "bin/code-server"
        start.write_text(_START)
        start.chmod(0o755)
        say.step("trying code-server")
        run([start, "--version"], folder, say, env={"HOME": str(folder)})
        shutil.rmtree(folder / ".config", ignore_errors=True)
        shutil.rmtree(folder / ".local", ignore_errors=True)
        version = npm.version(folder, "code-server")
        return BuiltAddon(version, {"code-server": version, "node": npm.version(folder, f"node-linux-{npm.machine()}")})


def _require_compiler() -> None:
    missing = [name for name in ("make", "g++", "python3") if shutil.which(name) is None]
    if missing:
        raise errors.Unsupported(
            f"Native parts of VS Code are compiled on the server, which has no {' and no '.join(missing)} "
            "(Debian and Ubuntu: apt install make g++ python3)."
        )


def _compile(folder: Path, workbench: Path, say: ProgressReporter) -> None:
    env = _headers()
    for package, result in _COMPILED.items():
        say.step(f"compiling {package}")
        try:
            run([npm.require(), "rebuild", "--loglevel=error", package], workbench, say, env=env)
        except errors.AddonFailed:
            # node-pty's last step fails on an npm warning after everything is done, so the result is checked instead.
            if not (workbench / "node_modules" / package / result).is_file():
                raise
    say.step("compiling argon2")
    run([npm.require(), "rebuild", "--loglevel=error", "argon2"], folder, say, env=env)


def _headers() -> Mapping[str, str]:
    """Node.js' headers if installed, so that they are not downloaded."""
    node = shutil.which("node")
    prefix = Path(node).resolve().parent.parent if node else Path("/usr")
    return {"npm_config_nodedir": str(prefix)} if (prefix / "include/node/node.h").is_file() else {}


def _put_ripgrep(folder: Path, workbench: Path) -> None:
    """The package that VS Code depends on would download ripgrep; another package of the same authors contains it."""
    source = folder / "node_modules/@vscode/ripgrep-universal"
    target = workbench / "node_modules/@vscode/ripgrep/bin"
    target.mkdir(exist_ok=True)
    shutil.copy2(source / f"bin/linux-{npm.machine()}/rg", target / "rg")
    (target / "rg").chmod(0o755)
    shutil.rmtree(source)
