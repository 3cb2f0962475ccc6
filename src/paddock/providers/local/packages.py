"""What lets pip and npm install, and what they installed be found, in an environment that is not the server's: login
shells, ``sudo -i``, ``env -i``. The variables are in ``machine/agent/environment.py``; in containers the agent writes
these files.
"""

from __future__ import annotations

from pathlib import Path

from paddock.addons import FOLDER
from paddock.machine.agent.environment import NPM_CONFIG
from paddock.providers.local.made_aside import made_aside

_PIP = "[global]\nbreak-system-packages = true\n"
_NPM = "prefix=${HOME}/.local\n"
_PROFILE = 'PATH="$HOME/.local/bin:$PATH:/run/paddock/bin"\n'
_DATA_PACKAGES = f"""

# Paddock's add-on code-interpreter, after everything else that Python looks through. Not in virtual environments.
import os, sys
if sys.prefix == sys.base_prefix and os.path.isdir("{FOLDER}/code-interpreter/lib"):
    _python = sys.implementation
    sys.path.append("{FOLDER}/code-interpreter/lib/%s-%s" % (_python.cache_tag, _python._multiarch))
"""
_LOCAL = ("bin", "etc", "include", "lib/node_modules", "sbin", "share/man/man1", "src")


def configure(etc: Path, below: Path | None = None) -> None:
    """Written to ``etc``, a layer above ``below``: what a template has of its own stays."""
    if below is None or not (below / "pip.conf").exists():
        (etc / "pip.conf").write_text(_PIP)
    npm = etc / Path(NPM_CONFIG).relative_to("/etc")
    npm.parent.mkdir(mode=0o755, exist_ok=True)
    npm.write_text(_NPM)
    profile = etc / "profile.d" / "paddock.sh"
    profile.parent.mkdir(mode=0o755, exist_ok=True)
    profile.write_text(_PROFILE)
    for debians in (below or etc).glob("python3*/sitecustomize.py"):
        own = etc / debians.parent.name / debians.name
        own.parent.mkdir(mode=0o755, exist_ok=True)
        own.write_text(debians.read_text() + _DATA_PACKAGES)
    for path in (etc / "pip.conf", npm, profile):
        if path.exists():
            path.chmod(0o644)


def make_local(root: Path, usr: Path) -> Path:
    """Directories of ``/usr/local`` that are the server's user's own, and so the sandbox's root's.

    Without privilege ``/usr`` is the host's, whose directories belong to nobody inside: nothing can be made in them,
    not even in an overlay, unless a layer of ours has them as well.
    """
    local = usr / "local"
    pythons = [path.name for path in (usr / "bin").glob("python3.*") if path.name.removeprefix("python3.").isdigit()]
    wanted = [*_LOCAL, *(f"lib/{python}/dist-packages" for python in pythons)]
    with made_aside(root) as draft:
        for name in wanted:
            parts = [Path(*Path(name).parts[: count + 1]) for count in range(len(Path(name).parts))]
            if not any((local / part).is_symlink() for part in parts):
                (draft / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    return root
