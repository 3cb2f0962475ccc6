"""The program ``runsc``: where it is, which version, and which of its platforms is used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.providers.base import IsolationLevel
from paddock.providers.local.host import HostCapabilities

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PLATFORMS = ("systrap", "ptrace")
"""Best first. Not ``kvm``: its device would have to be opened to the ids of a sandbox."""
_SECONDS = 30.0
_VERSION = re.compile(r"runsc version (?:release-)?(?:0\.0~)?((\d{8})\S*)")
_OLDEST = "20240729"
"""That this was tried with. In one of 2022, ``ls`` fails, and a terminal knows no Control-C."""
_GET = (
    f"Install one of {_OLDEST} or later (Debian 13: apt install runsc; others: gvisor.dev), or name the program in "
    "PADDOCK_RUNSC."
)


@dataclass(frozen=True, slots=True)
class RunscSettings:
    """As the settings say; empty leaves it to us."""

    program: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class Runsc:
    program: Path
    version: str
    platform: str

    def __str__(self) -> str:
        return f"gVisor: runsc {self.version}, platform {self.platform}"


def find(wanted: RunscSettings, host: HostCapabilities) -> Runsc:
    """Raises :class:`~paddock.errors.ProviderRefused`, with what to do, where the level cannot be given here."""
    if not host.privileged:
        raise errors.ProviderRefused("A kernel of its own needs Paddock to run as root: runsc starts as root only.")
    if host.level is not IsolationLevel.STRICT:
        raise errors.ProviderRefused(
            f"A kernel of its own comes on top of the level 'strict', and this machine gives {host.level.value!r}."
        )
    found = wanted.program or shutil.which("runsc", path=_PATH)
    if not found:
        raise errors.ProviderRefused(f"A kernel of its own needs gVisor's program runsc, which is not here. {_GET}")
    program = Path(found)
    if not program.is_absolute() or not os.access(program, os.X_OK) or not program.is_file():
        raise errors.ProviderRefused(f"PADDOCK_RUNSC is {found!r}, which is not the absolute path of a program.")
    version = _VERSION.search(_says(program, "--version"))
    if version is None:
        raise errors.ProviderRefused(f"{program} does not say which version of gVisor's runsc it is. {_GET}")
    if version[2] < _OLDEST and not wanted.program:  # who names an older one knows what he does
        raise errors.ProviderRefused(f"{program} is of {version[2]}, which is too old to be of use. {_GET}")
    return Runsc(program, version[1], _platform(program, wanted.platform))


def _platform(program: Path, wanted: str) -> str:
    there = _says(program, "help", "platforms").split()
    for name in [wanted] if wanted else _PLATFORMS:
        if name in there:
            return name
    raise errors.ProviderRefused(
        f"{program} has no platform {wanted or ' or '.join(_PLATFORMS)!r}; it has {', '.join(there) or 'none'}. "
        "PADDOCK_RUNSC_PLATFORM chooses one."
    )


def _says(program: Path, *words: str) -> str:
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_SECONDS, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.ProviderRefused(f"{program} cannot be run: {error}") from error
    return done.stdout
