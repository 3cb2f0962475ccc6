"""Commands and processes over the agent: started once, followed from any offset, awaited without polling."""

from __future__ import annotations

import re
import signal as signals
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.connection import AgentConnection
from paddock.machine.agent.early_output import EarlyOutput, EarlyOutputs
from paddock.machine.agent.environment import package_variables, undisturbed
from paddock.machine.agent.failures import AgentRefusal, LinkLost
from paddock.machine.agent.flows import WINDOW, FollowCall, SpawnCall
from paddock.machine.agent.link import AgentLink
from paddock.machine.agent.pending import PatientCall, PendingCall
from paddock.machine.agent.replies import STREAMS, read_output, read_process, read_processes
from paddock.machine.agent.wire import MAX_BULK, ProtocolError, Reader, ReplyKind, RequestKind, Writer, plain_path
from paddock.machine.base import MAX_NOTE, OutputChunk, OutputLimits, ProcessInfo, ProcessSpec, Stream, TerminalSize

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
_STDIN, _TERMINAL, _FOLLOW, _FOLLOW_ALL, _STRICT, _NOTE, _SHORTCUT, _WINDOW = 1, 2, 4, 8, 16, 32, 64, 128
_STDIN_CHUNK_BYTES = 64 * 1024
_LABEL_BYTES = 1024
_MAX_TIMEOUT_MS = 1 << 62
_MAX_HOLD_SECONDS = 1_000_000.0
_DEFAULT_TERM = "xterm-256color"


class AgentProcesses:
    def __init__(
        self, line: AgentConnection, environment: Callable[[], Mapping[str, str]], limits: OutputLimits
    ) -> None:
        self._connection = line
        self._environment = environment
        self._limits = limits
        self._tails = EarlyOutputs(limits.spool)

    def close(self) -> None:
        self._tails.close()

    # Starting

    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        return (await self._begin(spec))[0]

    async def run(
        self, spec: ProcessSpec, timeout: float | None
    ) -> tuple[ProcessInfo, Callable[[Stream, int], OutputChunk | None]]:
        """The process when it has ended or the timeout has passed, and a reader of output that is already here."""
        info, tail = await self._begin(spec)
        if info.running:
            info = await self._end_of(tail or self._tails.get(spec.process_id), spec.process_id, timeout)
        return info, lambda stream, limit: None if tail is None else tail.read(stream, 0, limit)

    async def _begin(self, spec: ProcessSpec) -> tuple[ProcessInfo, EarlyOutput | None]:
        _check(spec)
        environment = {**package_variables(spec.user), **self._environment(), **spec.env}
        try:
            return await self._connection.ask(lambda link: self._spawn(link, spec, environment), again=True)
        except AgentRefusal as refusal:
            raise failures.of_spawn(refusal, spec.cwd) from None

    async def _spawn(
        self, link: AgentLink, spec: ProcessSpec, environment: Mapping[str, str]
    ) -> tuple[ProcessInfo, EarlyOutput | None]:
        seconds = self._connection.reply_seconds
        tail = self._tails.begin(spec.process_id)
        payload = self._payload(link, spec, environment, 0 if tail is None else _FOLLOW)
        if tail is None:
            return await link.call(RequestKind.SPAWN, payload, _one(spec.process_id), seconds), None
        try:
            link.begin(RequestKind.SPAWN, payload, tail)
        except BaseException:
            tail.drop()
            raise
        return await tail.start(seconds), tail

    async def begin(self, spec: ProcessSpec, linger: bool) -> AsyncGenerator[ProcessInfo | OutputChunk, None]:
        _check(spec)
        environment = {**package_variables(spec.user), **self._environment(), **spec.env}

        async def launch(link: AgentLink) -> tuple[ProcessInfo, SpawnCall]:
            flow = SpawnCall(spec.process_id, windowed=link.windows)
            flags = _FOLLOW | (_FOLLOW_ALL if linger else 0) | (_WINDOW if link.windows else 0)
            link.begin(RequestKind.SPAWN, self._payload(link, spec, environment, flags), flow)
            return await flow.start(self._connection.reply_seconds), flow

        try:
            info, flow = await self._connection.ask(launch, again=True)
        except AgentRefusal as refusal:
            raise failures.of_spawn(refusal, spec.cwd) from None
        try:
            yield info
            async with aclosing(self._lasting(spec.process_id, flow, 0, 0, linger=linger)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            flow.leave()

    def _payload(self, link: AgentLink, spec: ProcessSpec, environment: Mapping[str, str], flags: int) -> Writer:
        size = spec.terminal or TerminalSize()
        if spec.strict:
            flags |= _STRICT
        if spec.note:
            flags |= _NOTE
        if not link.details:
            flags &= _FOLLOW | _WINDOW
        if spec.shortcut and link.shortcuts and undisturbed(environment):
            flags |= _SHORTCUT
        if spec.stdin or spec.terminal:
            flags |= _STDIN
        if spec.terminal:
            flags |= _TERMINAL
            environment = {"TERM": _DEFAULT_TERM, **environment}
        # A timeout that rounds to zero must not become "no timeout".
        timeout = 0 if spec.hard_timeout is None else max(1, round(min(_MAX_TIMEOUT_MS, spec.hard_timeout * 1000)))
        label = spec.label.encode(errors="replace")[:_LABEL_BYTES].decode(errors="ignore").replace("\0", " ")
        payload = (
            Writer()
            .text(spec.process_id)
            .texts(spec.argv)
            .texts(f"{name}={value}" for name, value in environment.items())
            .text(plain_path(spec.cwd))
            .text(spec.user)
            .u8(flags)
            .u16(size.rows)
            .u16(size.cols)
            .u64(timeout)
            .u64(self._limits.spool)
            .text(label)
        )
        if flags & _NOTE:
            payload.blob(spec.note)
        if flags & _SHORTCUT:
            payload.texts(spec.shortcut)
        if flags & _WINDOW:
            self._write_window(payload)
        return payload

    def _write_window(self, payload: Writer) -> None:
        payload.u32(WINDOW).u32(round(min(_MAX_HOLD_SECONDS, self._limits.hold_seconds) * 1000))

    # Queries and waiting

    async def processes(self) -> list[ProcessInfo]:
        try:
            return await self._connection.call(
                RequestKind.PROCESSES, Writer(), lambda: PendingCall(ReplyKind.PROCESS_LIST, read_processes), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_request(refusal) from None

    async def process(self, process_id: str) -> ProcessInfo:
        _check_id(process_id)
        try:
            return await self._connection.call(
                RequestKind.PROCESS_GET, Writer().text(process_id), lambda: _one(process_id), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_process(refusal, process_id) from None

    async def note(self, process_id: str) -> bytes:
        _check_id(process_id)

        async def ask(link: AgentLink) -> bytes:
            if not link.details:
                return b""
            call = PendingCall(ReplyKind.BYTES, lambda body: body.blob(MAX_NOTE))
            return await link.call(RequestKind.NOTE, Writer().text(process_id), call, self._connection.reply_seconds)

        try:
            return await self._connection.ask(ask, again=True)
        except AgentRefusal as refusal:
            raise failures.of_process(refusal, process_id) from None

    async def wait(self, process_id: str, timeout: float | None) -> ProcessInfo:
        _check_id(process_id)
        return await self._end_of(self._tails.get(process_id), process_id, timeout)

    async def _end_of(self, tail: EarlyOutput | None, process_id: str, timeout: float | None) -> ProcessInfo:
        deadline = None if timeout is None else time.monotonic() + timeout
        if tail is not None:
            if (ended := await tail.end(timeout)) is not None:
                return ended
            if tail.followed:  # so the timeout has passed
                return await self.process(process_id)
        if timeout is not None and timeout <= 0:
            return await self.process(process_id)

        async def until_the_end(link: AgentLink) -> ProcessInfo:
            call = PatientCall(ReplyKind.ENDED, lambda body: _ended(body, process_id))
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return await link.call(RequestKind.WAIT, Writer().text(process_id), call, left)

        try:
            return await self._connection.ask(until_the_end, again=True)
        except errors.ProviderTimeout:
            return await self.process(process_id)
        except AgentRefusal as refusal:
            raise failures.of_process(refusal, process_id) from None

    # Output

    async def read_output(self, process_id: str, stream: Stream, offset: int, limit: int) -> OutputChunk:
        _check_id(process_id)
        if offset < 0 or limit < 0:
            raise errors.Invalid("offset and limit must not be negative")
        tail = self._tails.get(process_id)
        # At the end of the kept output the agent is asked anyway: a child may have written since.
        if tail is not None and (kept := tail.read(stream, offset, limit)) is not None and kept.data:
            return kept
        limit = min(limit, MAX_BULK)
        payload = Writer().text(process_id).u8(STREAMS[stream]).u64(offset).u32(limit)

        def decode(body: Reader) -> OutputChunk:
            begin, data = read_output(body)
            if len(data) > limit or (data and begin < offset):
                raise ProtocolError("The sandbox's agent sent other output than it was asked for.")
            begin = max(begin, offset)
            return OutputChunk(stream, begin, data, begin - offset)

        try:
            return await self._connection.call(
                RequestKind.READ_OUTPUT, payload, lambda: PendingCall(ReplyKind.OUTPUT, decode), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_process(refusal, process_id) from None

    async def follow(
        self, process_id: str, stdout_offset: int, stderr_offset: int, linger: bool
    ) -> AsyncIterator[OutputChunk]:
        _check_id(process_id)
        if stdout_offset < 0 or stderr_offset < 0:
            raise errors.Invalid("offsets must not be negative")
        if (tail := self._tails.get(process_id)) is not None and tail.ended is None:
            tail.drop()  # a follower gets all output; it need not be sent twice
        flow = await self._begin_following(process_id, stdout_offset, stderr_offset, linger)
        async with aclosing(self._lasting(process_id, flow, stdout_offset, stderr_offset, linger=linger)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, OutputChunk):
                    yield chunk

    async def _lasting(
        self, process_id: str, flow: FollowCall, stdout_offset: int, stderr_offset: int, *, linger: bool
    ) -> AsyncGenerator[OutputChunk | ProcessInfo, None]:
        """The chunks of this flow, and of further flows that continue where it stopped; finally the process."""
        reached = {Stream.STDOUT: stdout_offset, Stream.STDERR: stderr_offset}
        losses = 0
        while True:
            try:
                while (chunk := await flow.take()) is not None:
                    skipped = chunk.offset - reached[chunk.stream]
                    reached[chunk.stream] = chunk.end
                    losses = 0
                    yield replace(chunk, skipped=skipped) if skipped else chunk
            except AgentRefusal as refusal:
                raise failures.of_process(refusal, process_id) from None
            except LinkLost:
                losses += 1
                if losses > 1:
                    raise
            finally:
                flow.leave()
            if flow.ended:
                for stream, size in ((Stream.STDOUT, flow.ended.stdout_size), (Stream.STDERR, flow.ended.stderr_size)):
                    if reached[stream] < size:  # output that the sandbox's disk had no room for
                        yield OutputChunk(stream, size, b"", size - reached[stream])
                yield flow.ended
                return
            flow = await self._begin_following(process_id, reached[Stream.STDOUT], reached[Stream.STDERR], linger)

    async def _begin_following(
        self, process_id: str, stdout_offset: int, stderr_offset: int, linger: bool
    ) -> FollowCall:
        async def begin(link: AgentLink) -> FollowCall:
            flow = FollowCall(process_id, stdout_offset, stderr_offset, windowed=link.windows)
            payload = Writer().text(process_id).u64(stdout_offset).u64(stderr_offset)
            if link.windows:
                self._write_window(payload.u8(linger))
                link.begin(RequestKind.FOLLOW_WINDOW, payload, flow)
            else:
                link.begin(RequestKind.FOLLOW_ALL if linger and link.details else RequestKind.FOLLOW, payload, flow)
            return flow

        return await self._connection.ask(begin, again=True)

    # Actions

    async def write_stdin(self, process_id: str, data: bytes) -> None:
        """Waits as long as the process does not read; if cancelled, a part may have been written."""
        for begin in range(0, len(data), _STDIN_CHUNK_BYTES):
            payload = Writer().text(process_id).blob(data[begin : begin + _STDIN_CHUNK_BYTES])
            await self._act(process_id, RequestKind.STDIN, payload, again=False, patient=True)

    async def close_stdin(self, process_id: str) -> None:
        await self._act(process_id, RequestKind.CLOSE_STDIN, Writer().text(process_id), again=False)

    async def signal(self, process_id: str, number: int, group: bool) -> None:
        if number not in signals.valid_signals():
            raise errors.Invalid(f"{number} is not the number of a signal.")
        kind = RequestKind.SIGNAL if group else RequestKind.SIGNAL_ONE
        await self._act(process_id, kind, Writer().text(process_id).i32(number), again=False)

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        if not (0 < size.rows < 1 << 16 and 0 < size.cols < 1 << 16):
            raise errors.Invalid("A terminal has between 1 and 65535 rows and columns.")
        payload = Writer().text(process_id).u16(size.rows).u16(size.cols)
        await self._act(process_id, RequestKind.RESIZE, payload, again=True)

    async def _act(
        self, process_id: str, kind: RequestKind, payload: Writer, *, again: bool, patient: bool = False
    ) -> None:
        _check_id(process_id)
        seconds = None if patient else self._connection.reply_seconds

        async def act(link: AgentLink) -> None:
            call = PatientCall(ReplyKind.OK, _nothing) if patient else PendingCall(ReplyKind.OK, _nothing)
            await link.call(kind, payload, call, seconds)

        try:
            await self._connection.ask(act, again=again)
        except AgentRefusal as refusal:
            raise failures.of_process(refusal, process_id) from None


def _one(process_id: str) -> PendingCall[ProcessInfo]:
    return PendingCall(ReplyKind.PROCESS, lambda body: read_process(body, process_id))


def _ended(body: Reader, process_id: str) -> ProcessInfo:
    info = read_process(body, process_id)
    if info.running:
        raise ProtocolError("The sandbox's agent told the end of a process that has not ended.")
    return info


def _nothing(body: Reader) -> None:
    """Decodes an empty reply."""


def _check_id(process_id: str) -> None:
    if not _ID.fullmatch(process_id):
        raise failures.not_found(process_id)


def _check(spec: ProcessSpec) -> None:
    if not _ID.fullmatch(spec.process_id):
        raise errors.Invalid(f"{spec.process_id[:100]!r} cannot be the id of a process.")
    if not spec.argv:
        raise errors.Invalid("The command is empty.")
    if any("=" in name or not name for name in spec.env):
        raise errors.Invalid("The name of a variable must not be empty or contain '='.")
    if len(spec.note) > MAX_NOTE:
        raise errors.Invalid(f"The note of a process has at most {MAX_NOTE} bytes.")
