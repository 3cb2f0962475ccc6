"""Contexts: a language, a directory, and a stateful kernel. Executions of one context run one at a time.

A context outlives its kernel: after a crash or a restart, the next execution starts a new kernel.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from typing import Callable

from .executions import Execution
from .kernels import CannotStart, Kernel, StartInterrupted

HOME = "/home/user"
_ALIASES = {"js": "javascript", "ts": "typescript", "py": "python", "sh": "bash", "shell": "bash"}
LISTED = ("python", "javascript")
"""Languages whose default contexts are listed from the beginning, before they have a kernel."""


class NoSuchContext(Exception):
    pass


class Context:
    def __init__(self, language: str, cwd: str, make_kernel: Callable[[str, str], Kernel]) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._make_kernel = make_kernel
        self._kernel: Kernel | None = None
        self._starting = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._running: Execution | None = None
        self._closed = False

    def describe(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def ready(self) -> Kernel:
        """The context's kernel, started if none is running."""
        async with self._starting:
            if self._closed:
                raise CannotStart(f"Context {self.id} was removed")
            if self._kernel is None or not self._kernel.alive:
                await self._end_kernel()
                _enter(self.cwd)
                try:
                    self._kernel = await self._start_kernel()
                except StartInterrupted:
                    self._kernel = await self._start_kernel()
            return self._kernel

    async def _start_kernel(self) -> Kernel:
        kernel = self._make_kernel(self.language, self.cwd)
        try:
            await kernel.start()
        except BaseException:
            await kernel.close()
            raise
        return kernel

    def execute(self, code: str, env: Mapping[str, str]) -> Execution:
        """Waits for earlier executions to end."""
        return Execution(lambda execution: self._run(code, env, execution))

    async def _run(self, code: str, env: Mapping[str, str], execution: Execution) -> None:
        async with self._turn:
            self._running = execution
            try:
                # That a kernel has ended may only be noticed here; then the code has not started yet.
                if not await execution.run_on(await self.ready(), code, env, again=True):
                    await execution.run_on(await self.ready(), code, env)
            finally:
                self._running = None

    async def restart(self) -> None:
        """Replace the kernel. The running execution ends with an error that says so."""
        await self._stop("Context was restarted")
        await self.ready()

    async def close(self) -> None:
        self._closed = True
        await self._stop("Context was removed")

    async def _stop(self, reason: str) -> None:
        async with self._starting:
            if self._running is not None:
                self._running.reason = reason
            await self._end_kernel()

    async def _end_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            await kernel.close()


class Contexts:
    """All contexts, in order of creation."""

    def __init__(self, make_kernel: Callable[[str, str], Kernel]) -> None:
        self._make_kernel = make_kernel
        self._all: dict[str, Context] = {}
        self._defaults: dict[tuple[str, str], Context] = {}
        for language in LISTED:
            self.default(language, HOME)

    def every(self) -> list[Context]:
        return list(self._all.values())

    def get(self, context_id: str) -> Context:
        try:
            return self._all[context_id]
        except KeyError:
            raise NoSuchContext(f"Context {context_id} not found") from None

    def default(self, language: str | None, cwd: str | None) -> Context:
        """The default context: one for each language and directory."""
        where = normalise(language), cwd or HOME
        if where not in self._defaults:
            self._defaults[where] = self._add(*where)
        return self._defaults[where]

    async def ready_default(self, language: str | None, cwd: str | None) -> Context:
        """The default context with a running kernel. If the kernel cannot start, the context is dropped, unless it is
        always listed."""
        context = self.default(language, cwd)
        try:
            await context.ready()
        except CannotStart:
            if context.language not in LISTED:
                await self._forget(context)
            raise
        return context

    async def create(self, language: str | None, cwd: str | None) -> Context:
        """Create a context with a running kernel. Nothing is kept if the kernel cannot start."""
        context = self._add(normalise(language), cwd or HOME)
        try:
            await context.ready()
        except BaseException:
            del self._all[context.id]
            raise
        return context

    async def remove(self, context_id: str) -> None:
        await self._forget(self.get(context_id))

    async def _forget(self, context: Context) -> None:
        self._all.pop(context.id, None)
        self._defaults = {where: each for where, each in self._defaults.items() if each is not context}
        await context.close()

    def _add(self, language: str, cwd: str) -> Context:
        context = Context(language, cwd, self._make_kernel)
        self._all[context.id] = context
        return context


def normalise(language: str | None) -> str:
    name = (language or "python").strip().lower()
    return _ALIASES.get(name, name)


def _enter(cwd: str) -> None:
    """Create a missing directory if permitted."""
    if not os.path.isabs(cwd):
        raise CannotStart(f"The working directory must be an absolute path, not {cwd!r}")
    try:
        os.makedirs(cwd, exist_ok=True)
    except OSError as problem:
        raise CannotStart(f"The working directory {cwd} cannot be used: {problem.strerror}") from None
    if not os.access(cwd, os.X_OK):
        raise CannotStart(f"The working directory {cwd} cannot be used: the user that code runs as may not enter it")
