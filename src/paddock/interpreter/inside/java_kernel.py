"""A Java process that keeps definitions between executions: JShell of the sandbox's own JDK, or of the add-on's."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncGenerator, Mapping

from . import outputs
from .kernels import START_SECONDS, CannotStart, KernelEnded, missing, programs
from .outputs import Output
from .piped import REPORT, STDERR, PipedKernel, PipedProcess

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "JavaKernel.java")
_FLAGS = (
    "-XX:+UseSerialGC",  # each kernel has its own heap; few processors
    "-Djava.awt.headless=true",
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # for the variables of one execution
    "--add-modules=jdk.jshell",
)
_MISSING = missing(
    "JDK",
    "java",
    "`sudo apt-get update && sudo apt-get install -y default-jdk-headless` in the sandbox",
)


class JavaKernel(PipedKernel):
    async def start(self) -> None:
        java = await self._spawn([_program(), *_FLAGS, _PROGRAM, "{orders}", "{reports}"])
        try:
            await asyncio.wait_for(_wait_ready(java), START_SECONDS)
        except asyncio.TimeoutError:
            raise CannotStart("The Java kernel did not start in time") from None

    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        fields = [code, *(word for pair in env.items() for word in pair)]
        return self._run(" ".join(["run", *map(_field, fields)]).encode() + b"\n")

    def interrupt(self) -> None:
        if self._process is not None:
            self._process.order(b"interrupt\n")

    def _report(self, text: str) -> tuple[list[Output], bool]:
        kind, *parts = text.split(" ")
        return ([], True) if kind == "done" else ([_output(kind, [_text(part) for part in parts])], False)


async def _wait_ready(java: PipedProcess) -> None:
    last = ""
    said = java.request(b"")
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
    for shell in programs("java", "jshell"):
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
