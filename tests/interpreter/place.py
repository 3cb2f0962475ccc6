"""Words for the tests of the interpreter: a server's house over a provider, and the wire of the interpreter itself."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpcore

from paddock.accounts.accounts import Principal
from paddock.interpreter import PORT
from paddock.interpreter.client import _lines, _SandboxStream
from paddock.lifecycle.controller import ActiveSandbox
from paddock.memory import unlimited
from paddock.models import CodeResult, CreateSandbox, Role, RunCode
from paddock.providers.base import Provider
from paddock.providers.local import LocalProvider
from paddock.server.context import ServerContext, build_context
from paddock.settings import Settings
from paddock.store.records import UserRow

Output = dict[str, Any]


class Place:
    """What outlives a server: its home and its sandboxes. Each test opens a server of its own on it."""

    def __init__(self, home: Path, made: Path, provider: str) -> None:
        self.home = home
        self._made = made
        self.provider = provider
        self.sandbox_id = ""
        """One sandbox that tests share which do not break it; made by the first that asks."""
        self.more: dict[str, str] = {}
        """Others, by what they are for."""

    def build(self) -> Provider:
        return LocalProvider(self.home / "local", made=self._made)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ServerContext]:
        settings = Settings(PADDOCK_HOME=self.home, SANDBOX_PROVIDER=self.provider, PADDOCK_POOL_SIZE=0, _env_file=None)
        server_context = build_context(settings, providers={self.provider: self.build()})
        await server_context.open(loops=False)
        try:
            yield server_context
        finally:
            await server_context.close()

    async def clear(self) -> None:
        provider = self.build()
        await provider.start()
        for found in await provider.list():
            await provider.delete(found.sandbox_id)
        await provider.close()


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Sandbox:
    """One sandbox from its owner's side: the native ``run_code``, commands, and the interpreter's own wire."""

    def __init__(self, server_context: ServerContext, who: Principal, sandbox_id: str) -> None:
        self.context = server_context
        self.who = who
        self.sandbox_id = sandbox_id

    async def run(self, code: str, **fields: Any) -> CodeResult:
        return await self.context.code.run(self.who, RunCode(sandbox_id=self.sandbox_id, code=code, **fields))

    async def shell(self, command: str, user: str = "user") -> str:
        """What a command that must succeed prints."""
        from paddock.models import RunCommand

        done = await self.context.commands.run(
            self.who, RunCommand(sandbox_id=self.sandbox_id, command=command, user=user)
        )
        assert done.exit_code == 0, f"{command!r} ended with {done.exit_code}: {done.output}"
        return done.stdout

    @asynccontextmanager
    async def use(self) -> AsyncIterator[ActiveSandbox]:
        async with self.context.controller.use(self.who, self.sandbox_id) as use:
            yield use

    # The wire

    @asynccontextmanager
    async def ask(self, method: str, path: str, body: Any = None) -> AsyncIterator[httpcore.Response]:
        content = b"" if body is None else json.dumps(body).encode()
        request = httpcore.Request(
            method,
            f"http://127.0.0.1:{PORT}{path}",
            headers={"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(content))},
            content=content,
        )
        async with self.use() as use:
            stream = _SandboxStream(await self.context.code._dial(use))
            connection = httpcore.AsyncHTTP11Connection(httpcore.Origin(b"http", b"127.0.0.1", PORT), stream)
            try:
                yield await connection.handle_async_request(request)
            finally:
                await connection.aclose()

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        async with self.ask(method, path, body) as response:
            return Answer(response.status, await response.aread())

    async def outputs(self, code: str, **fields: Any) -> AsyncGenerator[Output, None]:
        """As they come. Leaving it early hangs up."""
        async with self.ask("POST", "/execute", {"code": code, **fields}) as response:
            assert response.status == 200, await response.aread()
            async for line in _lines(response, unlimited()):
                assert line.isascii()
                yield json.loads(line)

    async def execute(self, code: str, **fields: Any) -> list[Output]:
        """Everything that the code says, without keepalives and the end, which is checked."""
        said = [output async for output in self.outputs(code, **fields) if output["type"] != "keepalive"]
        assert said[-1] == {"type": "end_of_execution"}
        assert said[0]["type"] == "number_of_executions", said
        return said[1:-1]

    async def new_context(self, language: str = "python", **fields: Any) -> str:
        made = await self.call("POST", "/contexts", {"language": language, **fields})
        assert made.status == 200, made.text
        return str(made.json["id"])


def admin(server_context: ServerContext) -> Principal:
    return Principal(
        "root", Role.ADMIN, 0, server_context.accounts.quota_of(UserRow("root", Role.ADMIN, False, *[None] * 4, 0.0))
    )


async def create(server_context: ServerContext, **fields: Any) -> Sandbox:
    who = admin(server_context)
    seen = await server_context.controller.create(who, CreateSandbox(user_id="tester", **fields))
    return Sandbox(server_context, who, seen.sandbox.sandbox_id)


def text_of(outputs: list[Output], kind: str = "stdout") -> str:
    return "".join(output["text"] for output in outputs if output["type"] == kind)


def one(outputs: list[Output], kind: str) -> Output:
    found = [output for output in outputs if output["type"] == kind]
    assert len(found) == 1, outputs
    return found[0]
