"""An R process that keeps definitions between executions: IRkernel, of the sandbox's own R or of the add-on's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from .fork_server_client import KernelProcess
from .jupyter_kernel import JupyterKernel
from .kernels import START_SECONDS, CannotStart, missing, programs
from .outputs import Output
from .parent_death import die_with

_HAS_KERNEL = 'quit(status = if (nzchar(system.file(package = "IRkernel"))) 0 else 3)'
_MISSING = missing(
    "R with IRkernel",
    "r",
    "`sudo apt-get update && sudo apt-get install -y r-base-core r-cran-irkernel` in the sandbox",
)
_TAKE_BACK = (
    "local({ old <- getOption('paddock.env'); Sys.unsetenv(names(old)); "
    "kept <- old[!is.na(old)]; if (length(kept)) do.call(Sys.setenv, as.list(kept)) })"
)


class RKernel(JupyterKernel):
    language = "R"
    _following: asyncio.Task[None]

    async def spawn(self, connection_file: str) -> KernelProcess:
        program = await _program()
        parent = os.getpid()
        process = await asyncio.create_subprocess_exec(
            *(program, "--slave", "-e", "IRkernel::main()", "--args", connection_file),
            cwd=self._cwd,
            env={**os.environ, "PWD": self._cwd},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )
        child = KernelProcess(process.pid)
        self._following = asyncio.ensure_future(_follow(process, child))
        return child

    async def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        if env:
            await self._silently(_set_variables(env))
        value: Output | None = None
        said = self.ask(code)
        try:
            async for output in said:
                if value is not None:
                    yield value
                value = output if _is_value(output) else None
                if value is None:
                    yield output
        finally:
            await said.aclose()
        if value is not None:
            yield {**value, "is_main_result": True}
        if env and self.alive:
            await self._silently(_TAKE_BACK)

    async def _silently(self, code: str) -> None:
        async for _ in self.ask(code, silent=True):
            pass


def _is_value(output: Output) -> bool:
    """IRkernel sends displayed objects and values in the same message type. The last one, unless it is a plot, is the
    value of the code."""
    return output["type"] == "result" and "png" not in output and "svg" not in output


async def _program() -> str:
    """The first R found that has IRkernel."""
    silent = ""
    for program in programs("r", "R"):
        try:
            if await _has_kernel(program):
                return program
        except asyncio.TimeoutError:
            silent = program
    raise CannotStart(f"{silent} does not answer" if silent else _MISSING)


async def _has_kernel(program: str) -> bool:
    parent = os.getpid()
    asked = await asyncio.create_subprocess_exec(
        *(program, "--slave", "--vanilla", "-e", _HAS_KERNEL),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: die_with(parent),
    )
    try:
        return await asyncio.wait_for(asked.wait(), START_SECONDS) == 0
    finally:
        if asked.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            await asked.wait()


async def _follow(process: asyncio.subprocess.Process, child: KernelProcess) -> None:
    status = await process.wait()
    how = f"exit code {status}" if status >= 0 else signal.Signals(-status).name
    child.ended.set_result(f"its kernel ended with {how}")


def _set_variables(env: Mapping[str, str]) -> str:
    values = ", ".join(f"{_name(name)} = {_text(value)}" for name, value in env.items())
    names = ", ".join(_text(name) for name in env)
    return f"options(paddock.env = Sys.getenv(c({names}), unset = NA, names = TRUE)); Sys.setenv({values})"


def _name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _text(value: str) -> str:
    """R strings support JSON's escapes except surrogate pairs."""
    return json.dumps(value, ensure_ascii=False)
