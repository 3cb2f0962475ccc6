"""What a kernel is to the rest of the program, whatever language it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping

from .outputs import Output

START_SECONDS = 60.0


class CannotStart(Exception):
    """There is no kernel to be had for this language; the message says what is missing."""


class StartInterrupted(CannotStart):
    """It was ended from outside while it started: another can be started in its place."""


class KernelEnded(Exception):
    """The process that ran the code is gone, and with it everything that the code had made."""


class Kernel(ABC):
    """One process that runs code and remembers what it defined. Runs one thing at a time; the context sees to that."""

    patience: float | None = None
    """Seconds after an interrupt in which it must have stopped, or it is killed. None: it is asked, never killed."""

    @property
    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    async def start(self) -> None:
        """Ready for code when it returns. Raises ``CannotStart``."""

    @abstractmethod
    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        """What the code says, to its end. ``env`` is for this run alone. Raises ``KernelEnded``."""

    @abstractmethod
    def interrupt(self) -> None:
        """Stop what runs now, keeping what there is. Harmless when nothing runs."""

    @abstractmethod
    async def close(self) -> None:
        """End the process, whatever it does."""
