"""Whether this machine can run sandboxes by itself; asked before a server chooses its provider."""

from __future__ import annotations

import contextlib
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paddock.providers.common.launch import Launcher
from paddock.providers.common.programs import Programs
from paddock.providers.local.host import HostCapabilities, look


def check() -> list[str]:
    """What keeps the local provider from running on this machine; empty when nothing does."""
    if platform.system() != "Linux":
        return ["The local provider needs Linux."]
    programs = Programs.find()
    if (missing := programs.problem()) is not None:
        return [missing]
    with looked_at(programs) as found:
        return list(found.problems)


@contextlib.contextmanager
def looked_at(programs: Programs) -> Iterator[HostCapabilities]:
    """The machine, tried out in a folder that goes away again."""
    launcher = Launcher(programs.launcher, b"")
    try:
        with tempfile.TemporaryDirectory(prefix="paddock-") as folder:
            found = look(Path(folder), programs, launcher)
            try:
                yield found
            finally:
                found.cgroups.leave()
    finally:
        launcher.close()
