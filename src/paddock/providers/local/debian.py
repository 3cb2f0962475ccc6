"""A Debian root file system as a template, made by ``mmdebstrap`` when the user asks for one."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from paddock import errors
from paddock.removal import remove

PACKAGES = ("bash", "ca-certificates", "curl", "git", "less", "procps", "python3", "python3-pip", "python3-venv")
_FALLBACK_SUITE = "stable"
_SECONDS = 3600

Say = Callable[[str], None]
"""Called with each line that the tools print."""


def build(target: Path, *, suite: str | None, packages: Sequence[str], mirror: str | None, say: Say) -> None:
    """Made aside and renamed: a template is there whole or not at all."""
    if target.exists():
        raise errors.AlreadyExists(f"There is a template {target.name!r} already. Remove it first, or choose a name.")
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise errors.Unsupported("This needs the program mmdebstrap (Debian and Ubuntu: apt install mmdebstrap).")
    if os.geteuid() != 0 and shutil.which("newuidmap") is None:
        raise errors.Unsupported("As an ordinary user this needs newuidmap, too (apt install uidmap).")
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    suite = suite or _own_release().get("VERSION_CODENAME") or _FALLBACK_SUITE
    include = ",".join(dict.fromkeys((*PACKAGES, *packages)))
    command = [tool, "--variant=minbase", f"--include={include}", "--format=tar", suite, "-", *_sources(suite, mirror)]
    try:
        draft.mkdir(mode=0o755)
        _unpack(command, draft, say)
        draft.rename(target)
    finally:
        if draft.exists():
            remove(draft)


def _unpack(command: Sequence[str], target: Path, say: Say) -> None:
    """Devices are left out: every sandbox has its own. Without root all files are the user's own, as they must be."""
    owner = [] if os.geteuid() == 0 else ["--no-same-owner", "--no-same-permissions"]
    tar = ["tar", "-x", "-C", str(target), "--exclude=./dev/*", "--numeric-owner", *owner]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as made:
        assert made.stdout is not None and made.stderr is not None  # noqa: S101 - both are pipes
        with subprocess.Popen(tar, stdin=made.stdout) as unpacked:
            made.stdout.close()
            last = ""
            for line in made.stderr:
                last = line.decode(errors="replace").strip()
                say(last)
            codes = made.wait(_SECONDS), unpacked.wait(_SECONDS)
    if any(codes):
        raise errors.ProviderUnavailable(f"mmdebstrap did not succeed: {last}")


def _sources(suite: str, mirror: str | None) -> list[str]:
    """Where the packages come from: what was asked for, else what this host itself uses for the same release."""
    if mirror is not None:
        return [mirror]
    if _own_release().get("VERSION_CODENAME") != suite:
        return []
    apt = Path("/etc/apt")
    found = [
        apt / "sources.list",
        *sorted(apt.glob("sources.list.d/*.sources")),
        *sorted(apt.glob("sources.list.d/*.list")),
    ]
    return [str(path) for path in found if path.is_file() and path.stat().st_size]


def _own_release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.strip('"') for name, _, value in pairs}
