"""``process.Process``: starts, follows, writes to, resizes and kills commands and terminals.

A process is independent of its listeners: it continues when a client disconnects, and any client may connect to it.
Output written while nobody listens is not replayed. Only its deadline, which the agent enforces even if this server is
down, ends it.
"""

from __future__ import annotations

import signal
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from paddock import errors, ids
from paddock.api.compat.e2b.envd.connect import Code, ConnectError, encode
from paddock.api.compat.e2b.envd.directory import Directory, ProcessConfig
from paddock.api.compat.e2b.envd.fields import Fields
from paddock.api.compat.e2b.envd.inside import EnvdContext, MarkerFiles, resolved
from paddock.api.compat.e2b.envd.streaming import ServerStream, timeout_of
from paddock.machine.base import OutputChunk, ProcessInfo, ProcessSpec, ProcessStatus, Stream, TerminalSize
from paddock.runtime.output import gap_note

_SIGNAL_NAMES = {
    1: "hangup",
    2: "interrupt",
    3: "quit",
    4: "illegal instruction",
    5: "trace/breakpoint trap",
    6: "aborted",
    7: "bus error",
    8: "floating point exception",
    9: "killed",
    10: "user defined signal 1",
    11: "segmentation fault",
    12: "user defined signal 2",
    13: "broken pipe",
    14: "alarm clock",
    15: "terminated",
}
_KILL = 9
_CHUNK, _TERMINAL_CHUNK = 32 * 1024, 16 * 1024
_DATA = b'{"event":{"data":{"%s":"%s"}}}'
_LABEL = 1000
_BACKSTOP = 0.5
"""Seconds by which the agent's deadline is later than ours, so that listeners are informed by us."""
_KILL_SECONDS = 2.0
_SIGNALS = {
    "SIGNAL_SIGKILL": signal.SIGKILL,
    "SIGNAL_SIGTERM": signal.SIGTERM,
    "9": signal.SIGKILL,
    "15": signal.SIGTERM,
}


class ProcessService:
    def __init__(self) -> None:
        self._directory = Directory()
        self._marks = MarkerFiles()

    # Streams

    async def start(self, inside: EnvdContext, message: Fields) -> None:
        timeout = timeout_of(inside)
        spec, config = await self._spec(inside, message, timeout)
        await self._marks.put(inside)
        stream = ServerStream(inside, self._started(inside, spec, config))
        await stream.run(timeout, lambda: _kill(inside, spec.process_id))

    async def connect(self, inside: EnvdContext, message: Fields) -> None:
        await ServerStream(inside, self._connected(inside, message.must("process"))).run(timeout_of(inside))

    async def _started(
        self, inside: EnvdContext, spec: ProcessSpec, config: ProcessConfig
    ) -> AsyncGenerator[bytes, None]:
        ended: ProcessInfo | None = None
        started: ProcessInfo | None = None
        sent = 0
        try:
            async with aclosing(_begun(inside, spec, config)) as items:
                async for item in items:
                    if isinstance(item, OutputChunk):
                        sent += len(item.data)
                        for message in _data(item, spec.terminal is not None):
                            yield message
                    elif started is None:
                        started = item
                        self._directory.add(inside.machine, item, config)
                        yield _start(item)
                    else:
                        ended = item
                        yield _end(item)
        except errors.PathNotFound:
            raise ConnectError(Code.INVALID_ARGUMENT, f"cwd '{spec.cwd}' does not exist") from None
        except (errors.Invalid, errors.PathConflict, errors.PathDenied) as error:
            raise ConnectError(Code.INVALID_ARGUMENT, error.message) from None
        finally:
            if started is not None:
                await _record(inside, ended or started, spec.label, sent)

    async def _connected(self, inside: EnvdContext, selector: Fields) -> AsyncGenerator[bytes, None]:
        machine = inside.machine
        info = await self._directory.find(machine, selector)
        yield _start(info)
        chunks = machine.follow(info.process_id, info.stdout_size, info.stderr_size, linger=True)
        sent = 0
        try:
            async for chunk in chunks:
                sent += len(chunk.data)
                for message in _data(chunk, info.terminal):
                    yield message
            yield _end(await machine.process(info.process_id))
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
            await inside.use.record(bytes_out=sent)

    async def _spec(
        self, inside: EnvdContext, message: Fields, timeout: float | None
    ) -> tuple[ProcessSpec, ProcessConfig]:
        asked = message.must("process")
        if not asked.text("cmd"):
            raise ConnectError(Code.INVALID_ARGUMENT, "the command is empty")
        account = await inside.account()
        config = ProcessConfig(
            asked.text("cmd"),
            asked.texts("args"),
            asked.mapping("envs"),
            asked.text("cwd") if asked.has("cwd") else None,
            message.text("tag") if message.has("tag") else None,
        )
        own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
        spec = ProcessSpec(
            process_id=ids.new_process_id(),
            argv=[config.cmd, *config.args],
            cwd=resolved(account, config.cwd or ""),
            env={**own, **inside.environment(), **config.envs},
            user=account.name,
            terminal=_size(message.within("pty")),
            stdin=message.flag("stdin", True),
            hard_timeout=None if timeout is None else timeout + _BACKSTOP,
            label=_label(config),
            note=config.note(),
            strict=True,
        )
        return spec, config

    # Calls

    async def list(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        found = []
        for info, config in await self._directory.listed(inside.machine):
            tag = {} if config.tag is None else {"tag": config.tag}
            found.append({"config": config.document(), "pid": info.pid or 0, **tag})
        return {"processes": found}

    async def send_input(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        info = await self._directory.running(inside.machine, message.must("process"))
        await _write(inside, info, message.must("input"))
        return {}

    async def stream_input(self, inside: EnvdContext, messages: AsyncIterator[Fields]) -> dict[str, object]:
        """Each chunk is written to the process before the next one is read."""
        info: ProcessInfo | None = None
        async for message in messages:
            if (start := message.within("start")) is not None:
                info = await self._directory.running(inside.machine, start.must("process"))
            elif (data := message.within("data")) is not None:
                if info is None:
                    raise ConnectError(Code.INVALID_ARGUMENT, "the first message must select a process")
                await _write(inside, info, data.must("input"))
        return {}

    async def close_stdin(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        info = await self._directory.running(inside.machine, message.must("process"))
        if info.terminal:
            raise ConnectError(Code.UNKNOWN, "a terminal has no input that can be closed: send it Ctrl-D")
        await inside.machine.close_stdin(info.process_id)
        return {}

    async def send_signal(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        """Signals the process itself, not its children."""
        info = await self._directory.find(inside.machine, message.must("process"))
        name = message.enum("signal")
        if (number := _SIGNALS.get(name)) is None:
            raise ConnectError(Code.UNIMPLEMENTED, f"the signal {name[:50]!r} cannot be sent")
        try:
            await inside.machine.signal(info.process_id, number, group=False)
        except errors.ProcessEnded:
            raise ConnectError(Code.NOT_FOUND, f"process with pid {info.pid} not found") from None
        return {}

    async def update(self, inside: EnvdContext, message: Fields) -> dict[str, object]:
        info = await self._directory.running(inside.machine, message.must("process"))
        size = _size(message.within("pty"))
        if size is not None:
            if not info.terminal:
                raise ConnectError(Code.INTERNAL, "the process does not run on a terminal")
            await inside.machine.resize(info.process_id, size)
        return {}


async def _write(inside: EnvdContext, info: ProcessInfo, given: Fields) -> None:
    kind = "pty" if given.has("pty") else "stdin"
    if (kind == "pty") is not info.terminal:
        wanted = "runs on a terminal" if info.terminal else "does not run on a terminal"
        raise ConnectError(Code.INTERNAL, f"input of the kind {kind!r} cannot be sent: the process {wanted}")
    data = await given.blob(kind)
    try:
        await inside.machine.write_stdin(info.process_id, data)
    except errors.Conflict as error:  # closed, or there never was a pipe
        raise ConnectError(Code.INTERNAL, error.message) from None
    await inside.use.record(bytes_in=len(data))


async def _kill(inside: EnvdContext, process_id: str) -> None:
    """Kill the whole process group and wait for its end, because the client may check at once."""
    machine = inside.machine
    try:
        await machine.signal(process_id, signal.SIGKILL)
        await machine.wait(process_id, _KILL_SECONDS)
    except (errors.ProcessEnded, errors.ProcessNotFound):
        return


async def _begun(
    inside: EnvdContext, spec: ProcessSpec, config: ProcessConfig
) -> AsyncGenerator[ProcessInfo | OutputChunk, None]:
    """If the user's home does not exist and no directory was requested, the root directory is used."""
    try:
        async with aclosing(inside.machine.begin(spec)) as items:
            async for item in items:
                yield item
        return
    except errors.PathNotFound:
        if config.cwd:
            raise
    async with aclosing(inside.machine.begin(replace(spec, cwd="/"))) as items:
        async for item in items:
            yield item


async def _record(inside: EnvdContext, info: ProcessInfo, label: str, sent: int) -> None:
    data: dict[str, Any] = {"process_id": info.process_id, "command": label[:_LABEL]}
    event = "command.started"
    if not info.running:
        event = "command.finished"
        data |= {"exit_code": info.exit_code, "status": info.status.value}
    await inside.use.record(commands=1, bytes_out=sent, event=(event, data))


def _start(info: ProcessInfo) -> bytes:
    return b'{"event":{"start":{"pid":%d}}}' % (info.pid or 0)


def _data(chunk: OutputChunk, terminal: bool) -> list[bytes]:
    """Split into sizes that every client accepts. The JSON is built by hand for speed."""
    name = b"pty" if terminal else b"stdout" if chunk.stream is Stream.STDOUT else b"stderr"
    size = _TERMINAL_CHUNK if terminal else _CHUNK
    view = memoryview(chunk.data)
    # The protocol has no event for lost output: it is reported on stderr, so that stdout contains only the process's
    # output.
    note = [_DATA % (b"pty" if terminal else b"stderr", b64encode(gap_note(chunk)))] if chunk.skipped else []
    return note + [_DATA % (name, b64encode(view[at : at + size])) for at in range(0, len(view), size)]


def _end(info: ProcessInfo) -> bytes:
    if info.status is ProcessStatus.TIMED_OUT:
        raise ConnectError(Code.DEADLINE_EXCEEDED, "the time that the client gave for this command is over")
    return encode({"event": {"end": end_event(info)}})


def _size(pty: Fields | None) -> TerminalSize | None:
    if pty is None:
        return None
    size = pty.within("size")
    if size is None:
        return TerminalSize()
    rows, cols = size.number("rows") or TerminalSize().rows, size.number("cols") or TerminalSize().cols
    if not (0 < rows < 1 << 16 and 0 < cols < 1 << 16):
        raise ConnectError(Code.INVALID_ARGUMENT, "a terminal has between 1 and 65535 rows and columns")
    return TerminalSize(rows, cols)


def _label(config: ProcessConfig) -> str:
    """The command as the user typed it, without the shell that runs it."""
    typed = config.args[-1] if config.args[-2:-1] == ["-c"] else " ".join([config.cmd, *config.args])
    return typed[:_LABEL]


def end_event(info: ProcessInfo) -> dict[str, Any]:
    """The last event of a process's stream, worded like Go's ``os/exec``, because E2B's clients compare the text."""
    if info.status is ProcessStatus.COMPLETED and info.exit_code is not None:
        status = f"exit status {info.exit_code}"
        error = {"error": status} if info.exit_code else {}
        return {"exitCode": info.exit_code, "exited": True, "status": status, **error}
    number = info.exit_code - 128 if info.exit_code is not None and info.exit_code > 128 else _KILL
    status = f"signal: {_SIGNAL_NAMES.get(number, f'signal {number}')}"
    return {"exitCode": -1, "exited": False, "status": status, "error": status}
