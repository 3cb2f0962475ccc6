"""Commands and processes: each started once, awaited as long as the caller likes, readable from any offset.

A command outlives its caller: a soft timeout, a disconnect or a crash of the server never ends it. The process id is
chosen here before the spawn and stored with the idempotency key, so that a retry finds the first process.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from paddock import ids
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import SMALL, Reservation
from paddock.clock import Clock
from paddock.errors import PaddockError
from paddock.lifecycle.controller import ActiveSandbox, Controller, SandboxView
from paddock.lifecycle.idempotency import Idempotency, fingerprint
from paddock.lifecycle.locks import AdmissionQueue
from paddock.machine.base import (
    DEFAULT_USER,
    WORKSPACE,
    Machine,
    ProcessInfo,
    ProcessSpec,
    Stream,
    TerminalSize,
)
from paddock.models import CommandResult, CommandStatus, RunCommand, StartProcess
from paddock.runtime.output import Output, OutputSlice, ProcessAttachment, cut_tail, first_slice, read_slice
from paddock.runtime.shell_words import SHELL, words_of
from paddock.settings import Settings

_MAX_COMMAND_IN_EVENT = 1000
Item = TypeVar("Item")
_COPIES_IN_RESPONSE = 2
"""Output appears twice in a response: per stream, and combined."""


class Commands:
    def __init__(self, controller: Controller, idempotency: Idempotency, settings: Settings, clock: Clock) -> None:
        self._controller = controller
        self._idempotency = idempotency
        self._settings = settings
        self._clock = clock
        # one being processed by the server, one by the sandbox
        self._admission = AdmissionQueue(2 * (os.cpu_count() or 1))

    async def run(
        self,
        who: Principal,
        request: RunCommand,
        idempotency_key: str | None = None,
        holding: Reservation | None = None,
    ) -> CommandResult:
        """Run in a shell; return when the command has ended or the soft timeout has passed."""
        async with self._admission.turn(), self._controller.use(who, request.sandbox_id) as use:
            process_id = await self._process_id(who, request, idempotency_key)
            return await self._run(use, request, process_id, holding, again=idempotency_key is not None)

    async def run_first(
        self, who: Principal, made: SandboxView, command: str, timeout: float | None, holding: Reservation | None = None
    ) -> CommandResult:
        """Run the command of a create request. A retried create finds the same process."""
        sandbox_id = made.sandbox.sandbox_id
        request = RunCommand(sandbox_id=sandbox_id, command=command, timeout=timeout)
        try:
            async with self._controller.use_made(who, made) as use:
                return await self._run(use, request, ids.first_process_id(sandbox_id), holding, again=True)
        except PaddockError as error:
            error.details.setdefault("sandbox_id", sandbox_id)  # the sandbox exists: the caller can use or delete it
            raise

    async def stream_run(self, who: Principal, request: RunCommand, idempotency_key: str | None = None) -> Output:
        """The same, streaming. Without a timeout of its own it follows the command to its end."""
        async with self._controller.use(who, request.sandbox_id) as use:
            process_id = await self._process_id(who, request, idempotency_key)
            # Follow from the start: output written before a follower attaches would not be held back for it.
            begun = use.machine.begin(_spec(request, process_id), linger=False)
            info: ProcessInfo | None = None
            sent = 0
            try:
                first = await anext(begun)
                info = first if isinstance(first, ProcessInfo) else None
                yield first
                async with aclosing(_until_timeout(begun, request.timeout)) as items:
                    async for item in items:
                        if isinstance(item, ProcessInfo):
                            info = item
                        else:
                            sent += len(item.data)
                        yield item
                if info is not None and info.running:  # the timeout has passed
                    info = await use.machine.process(process_id)
                    yield info
            finally:
                if info is not None:
                    await self._record(use, info, request.command, sent, again=idempotency_key is not None)

    async def start(self, who: Principal, sandbox_id: str, request: StartProcess) -> ProcessInfo:
        argv = request.argv or [*SHELL, request.command or ""]
        size = request.terminal
        terminal = None if size is None else TerminalSize(size.rows, size.cols)
        spec = ProcessSpec(
            process_id=ids.new_process_id(),
            argv=argv,
            cwd=request.cwd or WORKSPACE,
            env=request.env,
            user=request.user or DEFAULT_USER,
            terminal=terminal,
            stdin=request.stdin or terminal is not None,
            hard_timeout=request.hard_timeout,
            label=(request.command or shlex.join(argv))[:_MAX_COMMAND_IN_EVENT],
            shortcut=words_of(request.command or ""),
        )
        async with self._controller.use(who, sandbox_id) as use:
            info = await use.machine.spawn(spec)
            await self._record(use, info, spec.label, 0)
            return info

    async def list_processes(self, who: Principal, sandbox_id: str) -> list[ProcessInfo]:
        async with self._controller.use(who, sandbox_id) as use:
            return await use.machine.processes()

    async def info(self, who: Principal, sandbox_id: str, process_id: str) -> ProcessInfo:
        async with self._controller.use(who, sandbox_id) as use:
            return await use.machine.process(process_id)

    async def wait(self, who: Principal, sandbox_id: str, process_id: str, timeout: float | None = None) -> ProcessInfo:
        """Wait for the process's end or the timeout; returns its state then."""
        limit = self._settings.command_timeout if timeout is None else timeout
        async with self._controller.use(who, sandbox_id) as use:
            return await use.machine.wait(process_id, limit)

    async def output(
        self,
        who: Principal,
        sandbox_id: str,
        process_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        wait: float = 0,
        limit: int | None = None,
    ) -> OutputSlice:
        """Output from these offsets on; if there is none yet, waits up to ``wait`` seconds for the first."""
        limit = min(limit or self._settings.max_output, self._settings.max_output)
        async with self._controller.use(who, sandbox_id) as use:
            machine = use.machine
            info = await machine.process(process_id)
            output = await read_slice(machine, info, stdout_offset, stderr_offset, limit)
            if wait and info.running and not output.size:
                await _wait_for_output(machine, process_id, stdout_offset, stderr_offset, wait)
                info = await machine.process(process_id)
                output = await read_slice(machine, info, stdout_offset, stderr_offset, limit)
            if output.size:
                await use.record(bytes_out=output.size)
            return output

    @asynccontextmanager
    async def attach(self, who: Principal, sandbox_id: str, process_id: str) -> AsyncIterator[ProcessAttachment]:
        """Attach to one process; the sandbox stays awake while the context is open."""
        async with self._controller.use(who, sandbox_id) as use:
            attachment = ProcessAttachment(use, await use.machine.process(process_id))
            try:
                yield attachment
            finally:
                await attachment.settle()

    async def follow(
        self,
        who: Principal,
        sandbox_id: str,
        process_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
    ) -> Output:
        """The current state, output from these offsets on as it is written, then the final state."""
        async with self.attach(who, sandbox_id, process_id) as attachment:
            yield attachment.info
            async with aclosing(attachment.follow(stdout_offset, stderr_offset)) as items:
                async for item in items:
                    yield item

    async def write_stdin(
        self, who: Principal, sandbox_id: str, process_id: str, data: bytes, close: bool = False
    ) -> None:
        async with self.attach(who, sandbox_id, process_id) as attachment:
            await attachment.write_stdin(data, close)

    async def signal(self, who: Principal, sandbox_id: str, process_id: str, name: str) -> None:
        async with self.attach(who, sandbox_id, process_id) as attachment:
            await attachment.signal(name)

    async def resize(self, who: Principal, sandbox_id: str, process_id: str, rows: int, cols: int) -> None:
        async with self.attach(who, sandbox_id, process_id) as attachment:
            await attachment.resize(rows, cols)

    async def _run(
        self, use: ActiveSandbox, request: RunCommand, process_id: str, holding: Reservation | None, *, again: bool
    ) -> CommandResult:
        """``again``: the request may be repeated, and must then find the same process."""
        limit = self._settings.max_output
        spec = _spec(request, process_id)
        if request.background:
            info = await use.machine.spawn(spec)
            output = await read_slice(use.machine, info, 0, 0, limit)
        else:
            wait = self._settings.command_timeout if request.timeout is None else request.timeout
            output = first_slice(*await use.machine.run(spec, wait, limit), limit)
            info = output.info
        if holding is not None and output.size > SMALL and not holding.try_reserve(_COPIES_IN_RESPONSE * output.size):
            output = output.cut(SMALL // 2)  # the command has run and must not be refused; the rest can be read later
        await self._record(use, info, request.command, output.size, again=again)
        return self._result(request.sandbox_id, output)

    async def _process_id(self, who: Principal, request: RunCommand, key: str | None) -> str:
        """The process id for this request: a new one, or that of the first request with this key."""
        process_id = ids.new_process_id()
        if key is None:
            return process_id
        asked = fingerprint("run-command", request)
        return await self._idempotency.claim(who, key, asked, request.sandbox_id, process_id)

    async def _record(
        self, use: ActiveSandbox, info: ProcessInfo, command: str, sent: int, *, again: bool = False
    ) -> None:
        """Record the command. Whether it was counted already is decided in the journal's transaction: a server may have
        died between the claim of the key and this call, so being the first to claim does not tell."""
        data: dict[str, Any] = {"process_id": info.process_id, "command": command[:_MAX_COMMAND_IN_EVENT]}
        if not info.running:
            data |= {
                "exit_code": info.exit_code,
                "status": info.status.value,
                "duration": self._duration(info),
            }
        event = ("command.started" if info.running else "command.finished", data)
        await use.record(commands=1, bytes_out=sent, event=event, once=info.process_id if again else None)

    def _duration(self, info: ProcessInfo) -> float:
        ended_at = self._clock.now() if info.ended_at is None else info.ended_at
        return round(max(0.0, ended_at - info.started_at), 6)

    def _result(self, sandbox_id: str, output: OutputSlice) -> CommandResult:
        info, stdout, stderr = output.info, output.stdout, output.stderr
        texts = [chunk.data.decode(errors="replace") for chunk in (stdout, stderr)]
        more = stdout.end < info.stdout_size or stderr.end < info.stderr_size
        return CommandResult(
            message="Still running: read on by process_id." if info.running else "",
            sandbox_id=sandbox_id,
            process_id=info.process_id,
            status=CommandStatus(info.status.value),
            exit_code=info.exit_code,
            output="".join(texts),
            stdout=texts[0],
            stderr=texts[1],
            stdout_start=stdout.offset,
            stderr_start=stderr.offset,
            stdout_skipped=stdout.skipped,
            stderr_skipped=stderr.skipped,
            stdout_offset=stdout.end,
            stderr_offset=stderr.end,
            truncated=more or stdout.offset > 0 or stderr.offset > 0,
            duration=self._duration(info),
        )


def _spec(request: RunCommand, process_id: str) -> ProcessSpec:
    return ProcessSpec(
        process_id=process_id,
        argv=[*SHELL, request.command],
        cwd=request.cwd or WORKSPACE,
        env=request.env,
        user=request.user or DEFAULT_USER,
        hard_timeout=request.hard_timeout,
        label=request.command[:_MAX_COMMAND_IN_EVENT],
        shortcut=words_of(request.command),
    )


async def _wait_for_output(
    machine: Machine, process_id: str, stdout_offset: int, stderr_offset: int, wait: float
) -> None:
    """Return once a whole character can be read, the process has ended, or the time is over."""
    heard = {Stream.STDOUT: b"", Stream.STDERR: b""}
    chunks = _until_timeout(machine.follow(process_id, stdout_offset, stderr_offset), wait)
    async with aclosing(chunks):
        async for chunk in chunks:
            heard[chunk.stream] += chunk.data
            if len(heard[chunk.stream]) > cut_tail(heard[chunk.stream]):
                return


async def _until_timeout(chunks: AsyncIterator[Item], seconds: float | None) -> AsyncGenerator[Item, None]:
    """The items that arrive within ``seconds``. Each step is a task, because a timeout must not span a yield."""
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    step: asyncio.Future[Item] | None = None
    try:
        while True:
            step = asyncio.ensure_future(anext(chunks))
            await asyncio.wait({step}, timeout=None if deadline is None else max(0.0, deadline - loop.time()))
            if not step.done():
                return
            try:
                chunk = step.result()
            except StopAsyncIteration:
                return
            yield chunk
    finally:
        if step is not None and not step.done():
            step.cancel()
            await asyncio.wait({step})
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
