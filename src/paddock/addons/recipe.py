"""How an add-on is built: into an empty directory, with npm and apt."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paddock import errors
from paddock.addons.progress import ProgressReporter

_SECONDS = 1800.0
_LAST_WORDS = 12


@dataclass(frozen=True, slots=True)
class BuiltAddon:
    version: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """Its components and their versions."""


class Recipe(Protocol):
    name: str
    summary: str

    @property
    def steps(self) -> int:
        """Number of progress steps."""

    @property
    def cache_key(self) -> str | None:
        """Equal keys mean equal results on this machine. None: not cached, because that is unknown or the build is
        fast."""

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        """Fill the empty directory. Raises with the next step if something is missing; the directory is then
        deleted."""


def run(
    argv: Sequence[str | Path], folder: Path, say: ProgressReporter, *, env: Mapping[str, str] | None = None
) -> str:
    """Run a program and return its output. Raises AddonFailed with the end of its output if it fails."""
    words = [str(word) for word in argv]
    said: list[str] = []
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as program:
        assert program.stdout is not None  # noqa: S101 - it is a pipe
        late = threading.Timer(_SECONDS, program.kill)
        late.start()
        try:
            for line in program.stdout:
                said.append(line)
                if line.strip():
                    say(line.strip())
        except BaseException:
            program.kill()
            raise
        finally:
            late.cancel()
    if program.returncode != 0:
        last = "".join(deque(said, _LAST_WORDS)).strip()
        raise errors.AddonFailed(f"`{' '.join(words[:3])}` ended with {program.returncode}: {last or 'no word'}")
    return "".join(said)
