"""Paths of the two native programs: the agent, which runs in sandboxes, and the launcher, which runs on the host."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BIN = Path(__file__).parents[2] / "bin"


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
