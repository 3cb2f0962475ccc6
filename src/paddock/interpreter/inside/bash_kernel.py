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
from .kernels import CannotStart
from .outputs import Output
from .piped import PipedKernel

_LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bash_kernel.sh")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BashKernel(PipedKernel):
    def __init__(self, cwd: str) -> None:
        super().__init__(cwd)
        self._folder: str | None = None

    async def start(self) -> None:
        program = shutil.which("bash")
        if program is None:
            raise CannotStart("There is no bash in this sandbox")
        self._folder = tempfile.mkdtemp(prefix="paddock-kernel-")
        await self._spawn([program, _LOOP, "{orders}", "{reports}"])

    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        assert self._folder is not None
        _write_scripts(self._folder, code, env)
        return self._run(self._folder.encode() + b"\n")

    def interrupt(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGINT)

    async def close(self) -> None:
        await super().close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _report(self, text: str) -> tuple[list[Output], bool]:
        return [outputs.error("ExitCode", text)] if text != "0" else [], True


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
