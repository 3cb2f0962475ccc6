"""A bash process that keeps variables, functions and the directory between executions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping

from . import outputs
from .kernels import CannotStart, Kernel
from .outputs import Output
from .piped import REPORT, PipedProcess

_LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bash_kernel.sh")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BashKernel(Kernel):
    patience = 3.0

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._bash: PipedProcess | None = None
        self._folder: str | None = None
        self._count = 0

    @property
    def alive(self) -> bool:
        return self._bash is not None and self._bash.alive

    async def start(self) -> None:
        program = shutil.which("bash")
        if program is None:
            raise CannotStart("There is no bash in this sandbox")
        self._folder = tempfile.mkdtemp(prefix="paddock-kernel-")
        self._bash = PipedProcess([program, _LOOP, "{orders}", "{reports}"], self._cwd)
        await self._bash.start()

    async def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        assert self._bash is not None and self._folder is not None
        self._count += 1
        yield outputs.count(self._count)
        _write_scripts(self._folder, code, env)
        said = self._bash.carry_out(self._folder.encode() + b"\n")
        try:
            async for where, text in said:
                if where != REPORT:
                    for piece in outputs.pieces(text):
                        yield outputs.stream(where, piece)
                    continue
                if text != "0":
                    yield outputs.error("ExitCode", text)
                return
        finally:
            await said.aclose()

    def interrupt(self) -> None:
        if self._bash is not None:
            self._bash.signal(signal.SIGINT)

    async def close(self) -> None:
        if self._bash is not None:
            await self._bash.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _write_scripts(folder: str, code: str, env: Mapping[str, str]) -> None:
    for name, script in _scripts(code, env).items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(script.encode("utf-8", "surrogatepass") + b"\n")


def _scripts(code: str, env: Mapping[str, str]) -> dict[str, str]:
    """The code, and the scripts that set and reset its variables."""
    before, after = [], []
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            continue  # bash cannot represent it
        kept = f"__paddock_old_{name}"
        before.append(
            f"if [[ -v {name} ]]; then {kept}=${name}; else unset {kept}; fi; export {name}={shlex.quote(value)}"
        )
        after.append(f"if [[ -v {kept} ]]; then {name}=${kept}; unset {kept}; else unset {name}; fi")
    return {"before.sh": "\n".join(before), "code.sh": code, "after.sh": "\n".join(after)}
