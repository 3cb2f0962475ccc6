"""A real server process that is meant to die: it kills itself, with SIGKILL, at a step chosen beforehand.

A step is the moment before or after a commit, or before or after a call of the provider. Nothing in the product knows
of this; the steps are wrapped from outside.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from paddock.api.app import create_app
from paddock.providers.base import Provider
from paddock.providers.docker import DockerProvider
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from paddock.store.database import Store
from tests.chaos.clock import SharedClock

PROVIDER_STEPS = ("create", "pause", "resume", "delete")
PROVIDERS = {"local": LocalProvider, "docker": DockerProvider}


@dataclass(frozen=True)
class Place:
    """Where one server of a test is: which one it is, and what is beside it."""

    number: int
    port: int
    grave: Path
    """Where it leaves the label of the step at which it died."""
    clock: Path
    log: Path
    """The errors of all its lives, on a disk that has room."""


@dataclass(frozen=True)
class Length:
    """Of a fuse."""

    steps: int
    calls_only: bool = False
    """Commits are not counted: while a provider is at work there are dozens of them, and no server would ever die
    around the provider's own steps."""


class Fuse:
    """Burns down by one with each step. The label of the fatal step is left behind for the test to read."""

    def __init__(self, length: Length | None, place: Place, clock: SharedClock) -> None:
        self._left = None if length is None else length.steps
        self._calls_only = length is not None and length.calls_only
        self._place = place
        self._clock = clock

    def burn(self, step: str, *, call: bool = False) -> None:
        if self._calls_only and not call:
            return
        # A server that dies between a jump of the clock and its noticing it cannot know that there was one.
        if self._left is None or not self._clock.followed(self._place.number):
            return
        self._left -= 1
        if self._left <= 0:
            self._place.grave.write_text(step)
            os.kill(os.getpid(), signal.SIGKILL)


def lay(fuse: Fuse, provider: type[Provider]) -> None:
    """Put the fuse around every step of the lifecycle."""
    original_write = Store.write
    last_call = ["start"]

    @asynccontextmanager
    async def write(self: Store, **options: Any) -> AsyncIterator[Any]:
        async with original_write(self, **options) as connection:
            yield connection
            fuse.burn(f"before commit, after {last_call[0]}")
        fuse.burn(f"after commit, after {last_call[0]}")

    Store.write = write  # type: ignore[method-assign]
    for name in PROVIDER_STEPS:
        original = getattr(provider, name)

        @functools.wraps(original)
        async def call(self: Any, *words: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
            fuse.burn(f"before {_name}", call=True)
            answer = await _original(self, *words, **named)
            last_call[0] = _name
            fuse.burn(f"after {_name}", call=True)
            return answer

        setattr(provider, name, call)


def run(environment: dict[str, str], place: Place, fuse_length: Length | None) -> None:
    """The process's main function."""
    log = place.log.open("a", buffering=1)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(["event"])],
        logger_factory=structlog.WriteLoggerFactory(log),
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    )
    logging.basicConfig(stream=log, level=logging.ERROR)
    clock = SharedClock(place.clock)
    clock.install(place.number)
    lay(Fuse(fuse_length, place, clock), PROVIDERS[environment["SANDBOX_PROVIDER"]])
    settings = Settings(**environment, HOST="127.0.0.1", PORT=place.port, _env_file=None)
    config = uvicorn.Config(
        create_app(settings), host="127.0.0.1", port=place.port, log_config=None, log_level="error", lifespan="on"
    )
    asyncio.run(uvicorn.Server(config).serve())
