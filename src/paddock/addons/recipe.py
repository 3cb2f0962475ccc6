"""How an add-on is made: in an empty folder, by the ordinary clients of npm and Debian."""

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
    """What is in it, each with its version."""


class Recipe(Protocol):
    name: str
    summary: str

    @property
    def steps(self) -> int:
        """How many it will tell of."""

    @property
    def cache_key(self) -> str | None:
        """The same where it would make the same on this machine. None: that cannot be known, or it is quick anyway."""

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        """Fill the empty folder. Raises with what to do where something is missing; what is left is thrown away."""


def run(
    argv: Sequence[str | Path], folder: Path, say: ProgressReporter, *, env: Mapping[str, str] | None = None
) -> str:
    """What the program printed. Raises AddonFailed with its last words where it did not succeed."""
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
