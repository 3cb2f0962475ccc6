"""A Node.js process that keeps definitions between executions, for JavaScript and TypeScript."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from . import outputs
from .kernels import CannotStart, Kernel
from .outputs import Output
from .piped import REPORT, PipedProcess

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_kernel.js")


class NodeKernel(Kernel):
    patience = 3.0

    def __init__(self, cwd: str, *, typescript: bool) -> None:
        self._cwd = cwd
        self._typescript = typescript
        self._node: PipedProcess | None = None
        self._count = 0

    @property
    def alive(self) -> bool:
        return self._node is not None and self._node.alive

    async def start(self) -> None:
        program = shutil.which("node") or shutil.which("nodejs")
        if program is None:
            raise CannotStart("There is no Node.js in this sandbox: install it, or use a template that has it")
        self._node = PipedProcess([program, _PROGRAM, "{orders}", "{reports}"], self._cwd)
        await self._node.start()

    async def execute(self, code: str, env: Mapping[str, str]) -> AsyncGenerator[Output, None]:
        assert self._node is not None
        self._count += 1
        yield outputs.count(self._count)
        order = {"code": code, "env": dict(env), "typescript": self._typescript}
        said = self._node.carry_out(json.dumps(order).encode() + b"\n")
        try:
            async for where, text in said:
                if where != REPORT:
                    for piece in outputs.pieces(text):
                        yield outputs.stream(where, piece)
                    continue
                report: dict[str, Any] = json.loads(text)
                if report["type"] == "done":
                    return
                for output in _outputs(report):
                    yield output
        finally:
            await said.aclose()

    def interrupt(self) -> None:
        if self._node is not None:
            self._node.order(b'{"interrupt": true}\n')

    async def close(self) -> None:
        if self._node is not None:
            await self._node.close()


def _outputs(report: Mapping[str, Any]) -> list[Output]:
    kind = report["type"]
    if kind in ("stdout", "stderr"):
        return [outputs.stream(kind, piece) for piece in outputs.pieces(report["text"])]
    if kind == "result":
        return [outputs.result(report["data"], report["main"])]
    return [outputs.error(report["name"], report["value"], report["traceback"])]
