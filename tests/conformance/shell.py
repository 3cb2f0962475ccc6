"""Short words for what the tests do all the time: run a script, wait for a line, put and get a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from paddock.ids import new_process_id
from paddock.machine.base import DEFAULT_USER, Machine, ProcessInfo, ProcessSpec, Stream, TerminalSize
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Ran:
    info: ProcessInfo
    out: bytes
    err: bytes

    @property
    def code(self) -> int | None:
        return self.info.exit_code

    @property
    def text(self) -> str:
        return self.out.decode().strip()


class Shell:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    async def start(
        self,
        script: str,
        *,
        process_id: str | None = None,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        terminal: TerminalSize | None = None,
        stdin: bool = False,
        hard_timeout: float | None = None,
        user: str = DEFAULT_USER,
    ) -> str:
        spec = ProcessSpec(
            process_id=process_id or new_process_id(),
            argv=["/bin/sh", "-c", script],
            cwd=cwd,
            env=env or {},
            user=user,
            terminal=terminal,
            stdin=stdin,
            hard_timeout=hard_timeout,
            label=script,
        )
        return (await self.machine.spawn(spec)).process_id

    async def run(
        self,
        script: str,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        *,
        user: str = DEFAULT_USER,
    ) -> Ran:
        return await self.finish(await self.start(script, cwd=cwd, env=env, user=user))

    async def finish(self, process_id: str) -> Ran:
        info = await self.machine.wait(process_id, PATIENCE_S)
        assert not info.running, f"{info.label!r} did not end"
        return Ran(info, await self.read(process_id, Stream.STDOUT), await self.read(process_id, Stream.STDERR))

    async def read(self, process_id: str, stream: Stream = Stream.STDOUT) -> bytes:
        """All that the spool holds."""
        data = b""
        offset = 0
        while (chunk := await self.machine.read_output(process_id, stream, offset)).data:
            data += chunk.data
            offset = chunk.end
        return data

    async def until(self, process_id: str, text: bytes) -> bytes:
        """The output so far, once this is in it."""
        seen = b""
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in self.machine.follow(process_id):
                seen += chunk.data
                if text in seen:
                    return seen
        raise AssertionError(f"ended without {text!r}: {seen!r}")

    async def put(self, path: str, data: bytes | str, *, mode: int | None = None, atomic: bool = True) -> None:
        content = data.encode() if isinstance(data, str) else data
        await self.machine.write_file(path, chunks(content), mode=mode, atomic=atomic)

    async def get(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return b"".join([chunk async for chunk in self.machine.read_file(path, offset, limit)])


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
