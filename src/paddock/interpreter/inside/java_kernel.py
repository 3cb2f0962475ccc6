"""A Java process that keeps definitions between executions: JShell of the sandbox's own JDK, or of the add-on's."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncGenerator, Mapping

from . import addons, outputs
from .kernels import START_SECONDS, CannotStart, Kernel, KernelEnded
from .outputs import Output
from .piped import REPORT, STDERR, PipedProcess

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "JavaKernel.java")
_FLAGS = (
    "-XX:+UseSerialGC",  # each kernel has its own heap; few processors
    "-Djava.awt.headless=true",
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # for the variables of one execution
    "--add-modules=jdk.jshell",
)
_MISSING = addons.missing(
    "JDK",
    "java",
    "`sudo apt-get update && sudo apt-get install -y default-jdk-headless` in the sandbox",
)


class JavaKernel(Kernel):
    patience = 3.0

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._java: PipedProcess | None = None
        self._count = 0

    @property
    def alive(self) -> bool:
        return self._java is not None and self._java.alive

    async def start(self) -> None:
        self._java = PipedProcess([_program(), *_FLAGS, _PROGRAM, "{orders}", "{reports}"], self._cwd)
        await self._java.start()
        try:
            await asyncio.wait_for(self._greet(self._java), START_SECONDS)
        except asyncio.TimeoutError:
            raise CannotStart("The Java kernel did not start in time") from None

    async def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        assert self._java is not None
        self._count += 1
        yield outputs.count(self._count)
        fields = [code, *(word for pair in env.items() for word in pair)]
        said = self._java.carry_out(" ".join(["run", *map(_field, fields)]).encode() + b"\n")
        try:
            async for where, text in said:
                if where != REPORT:
                    for piece in outputs.pieces(text):
                        yield outputs.stream(where, piece)
                    continue
                kind, *parts = text.split(" ")
                if kind == "done":
                    return
                yield _output(kind, [_text(part) for part in parts])
        finally:
            await said.aclose()

    def interrupt(self) -> None:
        if self._java is not None:
            self._java.order(b"interrupt\n")

    async def close(self) -> None:
        if self._java is not None:
            await self._java.close()

    async def _greet(self, java: PipedProcess) -> None:
        last = ""
        said = java.carry_out(b"")
        try:
            async for where, text in said:
                if where == REPORT:
                    return
                if where == STDERR:
                    last = text.strip()
        except KernelEnded as problem:
            raise CannotStart(f"The Java kernel did not start: {last[-500:] or problem}") from None
        finally:
            await said.aclose()


def _program() -> str:
    """The `java` beside the first JShell found: a Java runtime without JDK has no JShell."""
    for shell in addons.programs("java", "jshell"):
        program = os.path.join(os.path.dirname(os.path.realpath(shell)), "java")
        if os.access(program, os.X_OK):
            return program
    raise CannotStart(_MISSING)


def _output(kind: str, parts: list[str]) -> Output:
    if kind == "result":
        return outputs.result({"text/plain": parts[0]}, True)
    return outputs.error(*parts)


def _field(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def _text(field: str) -> str:
    return base64.b64decode(field).decode("utf-8", "replace")
