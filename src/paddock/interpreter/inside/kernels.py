"""The interface of a kernel, for any language, and where languages that a template may lack are found."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping

from .outputs import Output

START_SECONDS = 60.0
ADDONS = "/opt/paddock"


class CannotStart(Exception):
    """No kernel is available for this language; the message says what is missing."""


class StartInterrupted(CannotStart):
    """The process was killed during its start: another one can be started."""


class KernelEnded(Exception):
    """The kernel's process has ended, and all its state is lost."""


class Kernel(ABC):
    """A process that runs code and keeps its definitions. Runs one execution at a time; the context ensures that."""

    patience: float | None = None
    """Seconds after an interrupt before the process is killed. None: it is never killed."""

    @property
    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    async def start(self) -> None:
        """Returns when it is ready for code. Raises ``CannotStart``."""

    @abstractmethod
    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        """Run code and yield its output. ``env`` is for this execution only. Raises ``KernelEnded``."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt the running code; definitions are kept. No effect if nothing runs."""

    @abstractmethod
    async def close(self) -> None:
        """Kill the process."""


def programs(addon: str, name: str) -> Iterator[str]:
    """Paths of this program: on PATH, and in the add-on."""
    if found := shutil.which(name):
        yield found
    if found := shutil.which(os.path.join(ADDONS, addon, "bin", name)):
        yield found


def missing(language: str, addon: str, otherwise: str) -> str:
    return (
        f"There is no {language} in this sandbox: run `paddock addon install {addon}` on the server (once, for all of "
        f"its local sandboxes), or {otherwise}"
    )
