"""The server of the code interpreter: E2B's interpreter protocol on the supervisor's socket."""

from __future__ import annotations

import asyncio
import socket
from argparse import Namespace
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from . import http, outputs
from .bash_kernel import BashKernel
from .contexts import Context, Contexts, NoSuchContext
from .fork_server_client import ForkServerClient
from .java_kernel import JavaKernel
from .kernels import CannotStart, Kernel
from .node_kernel import NodeKernel
from .parent_death import die_with
from .python_kernel import PythonKernel
from .r_kernel import RKernel

KEEPALIVE_SECONDS = 5.0


class InterpreterServer:
    def __init__(self, fork_server: ForkServerClient) -> None:
        self._fork_server = fork_server
        self.contexts = Contexts(self._make_kernel)

    async def answer(self, request: http.HttpRequest) -> http.Answer:
        parts = [part for part in request.path.split("/") if part]
        try:
            return await self._route(request, parts)
        except NoSuchContext as problem:
            raise http.Refusal(404, str(problem)) from None
        except CannotStart as problem:
            raise http.Refusal(500, str(problem)) from None

    async def _route(self, request: http.HttpRequest, parts: list[str]) -> http.Answer:
        route = (request.method, *("*" if number == 1 else part for number, part in enumerate(parts)))
        if route == ("GET", "health"):
            return "OK"
        if route == ("POST", "execute"):
            return await self._execute(request.json())
        if route == ("GET", "contexts"):
            return [context.describe() for context in self.contexts.every()]
        if route == ("POST", "contexts"):
            body = request.json()
            return (await self.contexts.create(_text(body, "language"), _text(body, "cwd"))).describe()
        if route == ("POST", "warm"):
            await self.contexts.ready_default(_text(request.json(), "language"), _text(request.json(), "cwd"))
            return None
        if route == ("DELETE", "contexts", "*"):
            await self.contexts.remove(parts[1])
            return None
        if route == ("POST", "contexts", "*", "restart"):
            await self.contexts.get(parts[1]).restart()
            return None
        raise http.Refusal(404, "Not Found")

    async def _execute(self, body: dict[str, Any]) -> http.Answer:
        code, context_id, language = _text(body, "code"), _text(body, "context_id"), _text(body, "language")
        if code is None:
            raise http.Refusal(400, "There is no code to run")
        if context_id and language:
            raise http.Refusal(400, "Only one of context_id or language can be provided")
        env = body.get("env_vars") or {}
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise http.Refusal(400, "env_vars must map names to strings")
        # Start the kernel before the response, while the status can still report that there is none.
        context: Context
        if context_id:
            context = self.contexts.get(context_id)
            await context.ready()
        else:
            context = await self.contexts.ready_default(language, _text(body, "cwd"))
        return http.StreamedResponse(_lines(context, code, env))

    def _make_kernel(self, language: str, cwd: str) -> Kernel:
        if language == "python":
            return PythonKernel(self._fork_server, cwd)
        if language in ("javascript", "typescript"):
            return NodeKernel(cwd, typescript=language == "typescript")
        if language == "bash":
            return BashKernel(cwd)
        if language == "r":
            return RKernel(cwd)
        if language == "java":
            return JavaKernel(cwd)
        raise CannotStart(f"There is no kernel for {language!r}: use python, javascript, typescript, bash, r or java")


async def _lines(context: Context, code: str, env: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """Starts the code when the first line is requested: a client without any response knows that nothing has run."""
    execution = context.execute(code, env)
    try:
        async for output in execution.read(KEEPALIVE_SECONDS):
            yield outputs.line(output)
    finally:
        await execution.abandon()


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise http.Refusal(400, f"{name} must be a text")
    return value


async def _serve(listening: socket.socket, kit: str) -> None:
    interpreter = InterpreterServer(ForkServerClient(kit))
    open_now: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(http.ClientConnection(reader, writer, interpreter.answer).serve())
        open_now.add(task)
        task.add_done_callback(open_now.discard)

    server = await asyncio.start_server(accept, sock=listening, limit=http.MAX_HEAD)
    await server.serve_forever()


def main(options: Namespace) -> None:
    die_with(options.parent)
    asyncio.run(_serve(socket.socket(fileno=options.socket), options.kit))
