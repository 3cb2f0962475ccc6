"""A Node.js process that keeps definitions between executions, for JavaScript and TypeScript."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from . import outputs
from .kernels import CannotStart
from .outputs import Output
from .piped import PipedKernel

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_kernel.js")


class NodeKernel(PipedKernel):
    def __init__(self, cwd: str, *, typescript: bool) -> None:
        super().__init__(cwd)
        self._typescript = typescript

    async def start(self) -> None:
        program = shutil.which("node") or shutil.which("nodejs")
        if program is None:
            raise CannotStart("There is no Node.js in this sandbox: install it, or use a template that has it")
        await self._spawn([program, _PROGRAM, "{orders}", "{reports}"])

    def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        order = {"code": code, "env": dict(env), "typescript": self._typescript}
        return self._run(json.dumps(order).encode() + b"\n")

    def interrupt(self) -> None:
        if self._process is not None:
            self._process.order(b'{"interrupt": true}\n')

    def _report(self, text: str) -> tuple[list[Output], bool]:
        report: dict[str, Any] = json.loads(text)
        return ([], True) if report["type"] == "done" else (_outputs(report), False)


def _outputs(report: Mapping[str, Any]) -> list[Output]:
    kind = report["type"]
    if kind in ("stdout", "stderr"):
        return [outputs.stream(kind, piece) for piece in outputs.pieces(report["text"])]
    if kind == "result":
        return [outputs.result(report["data"], report["main"])]
    return [outputs.error(report["name"], report["value"], report["traceback"])]
