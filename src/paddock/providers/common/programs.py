"""The two native programs: the agent, which runs in sandboxes, and the launcher, which runs on the host."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from paddock import errors

_BIN = Path(__file__).parents[2] / "bin"
_ARCHITECTURES = {"arm64": "aarch64", "amd64": "x86_64"}


@dataclass(frozen=True, slots=True)
class Programs:
    agent: Path
    launcher: Path

    @classmethod
    def find(cls) -> Programs:
        folder = _BIN / platform.machine()
        return cls(folder / "paddock-agent", folder / "paddock-launch")

    def problem(self) -> str | None:
        for path in (self.agent, self.launcher):
            if not os.access(path, os.X_OK):
                return (
                    f"{path.name} was not built for {platform.machine()}. Install Paddock again where a C compiler "
                    "is found (Debian: apt install gcc libc6-dev), or with the ziglang package from PyPI."
                )
        return None


def architecture_of(name: str) -> str:
    """As ``uname -m`` has it."""
    return _ARCHITECTURES.get(name, name)


def agent_for(architecture: str, whose: str) -> bytes:
    """The agent for another machine. ``architecture`` may be anything that ``whose`` machine says of itself."""
    architecture = architecture_of(architecture)
    path = _BIN / architecture / "paddock-agent"
    try:
        if not architecture.replace("_", "").isalnum():
            raise FileNotFoundError(path)
        return path.read_bytes()
    except OSError:
        raise errors.ProviderRefused(
            f"{whose} machine is of the kind {architecture[:40]!r}, for which this installation of Paddock has no "
            "agent. A wheel that was built with the ziglang package has those for x86_64 and aarch64."
        ) from None
