"""The server's side of commands: begin them through the keeper, and follow them through what it leaves on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal as signals
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from paddock import errors
from paddock.clock import Clock
from paddock.machine.base import OutputChunk, ProcessInfo, ProcessSpec, ProcessStatus, Stream, TerminalSize
from paddock.machine.threads import in_thread
from paddock.providers.base import MachineState
from paddock.providers.fake import output
from paddock.providers.fake.descriptors import readable, writable
from paddock.providers.fake.files import Files
from paddock.providers.fake.folder import Folder, is_safe_name
from paddock.providers.fake.keeper import procfs
from paddock.providers.fake.namespaces import Holding, Namespaces
from paddock.providers.fake.process_record import ProcessRecord, Started
from paddock.providers.fake.view import environment

USERS = ("user", "root")
_BEGIN_SECONDS = 10.0
_SHORT, _LONG = 0.002, 0.05
_CHUNK = 256 * 1024
_PIPE_PIECE = 4096
_END_OF_INPUT = b"\x04"


class Processes:
    def __init__(self, folder: Folder, namespaces: Namespaces, files: Files, clock: Clock) -> None:
        self._folder = folder
        self._namespaces = namespaces
        self._files = files
        self._clock = clock

    # Beginning

    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        _check(spec)
        record = self._record(spec.process_id)
        if not record.path.exists():
            await in_thread(self._begin, spec, record)
        return self._info(record)

    def _begin(self, spec: ProcessSpec, record: ProcessRecord) -> None:
        with self._folder.locked(shared=True):
            sandbox = self._folder.existing()
            if sandbox.state is MachineState.PAUSED:
                raise errors.Conflict(f"Sandbox {sandbox.sandbox_id!r} is paused: resume it first.")
            self._files.check_working_directory(spec.cwd)
            if spec.strict:
                env = environment(sandbox.env, spec.env, terminal=spec.terminal is not None)
                self._files.check_program(spec.argv[0], env["PATH"])
            holding = self._namespaces.ensure()
            if record.publish(spec, sandbox.env, at=self._clock.now(), generation=holding.generation):
                self._namespaces.ask(f"spawn {record.process_id}")
                self._await_begin(record, holding)

    def _await_begin(self, record: ProcessRecord, holding: Holding) -> None:
        until = time.monotonic() + _BEGIN_SECONDS
        pause = 0.001
        while record.started() is None:
            if (why := record.refused()) is not None:
                too_long = why.startswith(f"{errno.E2BIG} ")
                kind = errors.Invalid if too_long else errors.ProviderUnavailable
                raise kind(f"The command could not be started: {why.partition(' ')[2]}")
            ended = record.ended()
            if ended and ended.status is ProcessStatus.TIMED_OUT:
                return  # its hard timeout struck before it had begun
            if ended and record.started() is None:  # both may have come since the last look
                text = output.read(record.path, Stream.STDERR, 0, 500).data.decode(errors="replace")
                raise errors.ProviderUnavailable(f"The sandbox could not be entered: {text.strip()}")
            if self._namespaces.current() != holding:
                raise errors.ProviderUnavailable("The sandbox's processes ended while the command was starting.")
            if time.monotonic() > until:
                raise errors.ProviderTimeout("The sandbox did not start the command in time.")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)  # many who look often would take the time from the one they wait for

    # Looking

    async def processes(self) -> list[ProcessInfo]:
        return await in_thread(self._all)

    async def process(self, process_id: str) -> ProcessInfo:
        return self._info(self._record(process_id))

    def records(self) -> Iterator[ProcessRecord]:
        try:
            names = os.listdir(self._folder.processes)  # noqa: PTH208
        except FileNotFoundError:
            return
        yield from (self._record(name) for name in names if not name.startswith("."))

    def _all(self) -> list[ProcessInfo]:
        return sorted(map(self._info, self.records()), key=lambda info: (info.started_at, info.process_id))

    def _record(self, process_id: str) -> ProcessRecord:
        if not is_safe_name(process_id):
            raise errors.ProcessNotFound(f"{process_id[:100]!r} is not the id of a process.")
        return ProcessRecord(self._folder.processes / process_id)

    def _info(self, record: ProcessRecord) -> ProcessInfo:
        holding = self._namespaces.current()
        try:
            return record.info(holding.generation if holding else None)
        except FileNotFoundError:  # its sandbox is deleted meanwhile
            raise errors.ProcessNotFound(f"There is no process {record.process_id!r} any more.") from None

    # Waiting and reading

    async def wait(self, process_id: str, timeout: float | None) -> ProcessInfo:
        record = self._record(process_id)
        try:
            async with asyncio.timeout(timeout):
                with _watched(record) as watch:
                    while (info := self._info(record)).running:
                        await watch.end_or(None)
                    return info
        except TimeoutError:
            return self._info(record)

    async def read_output(self, process_id: str, stream: Stream, offset: int, limit: int) -> OutputChunk:
        record = self._record(process_id)
        record.spec()
        if offset < 0 or limit < 0:
            raise errors.Invalid("offset and limit must not be negative")
        return await in_thread(output.read, record.path, stream, offset, limit)

    def note(self, process_id: str) -> bytes:
        return self._record(process_id).note()

    async def follow(
        self, process_id: str, stdout_offset: int, stderr_offset: int, linger: bool
    ) -> AsyncIterator[OutputChunk]:
        record = self._record(process_id)
        offsets = {Stream.STDOUT: stdout_offset, Stream.STDERR: stderr_offset}
        patience = _SHORT
        with _watched(record) as watch:
            while True:
                running = self._info(record).running or (linger and self._lingers(record))
                before = dict(offsets)
                for stream in Stream:
                    while (chunk := output.read(record.path, stream, offsets[stream], _CHUNK)).data:
                        offsets[stream] = chunk.end
                        yield chunk
                if not running:
                    return
                patience = _SHORT if offsets != before else min(patience * 1.5, _LONG)
                await watch.end_or(patience)

    def _lingers(self, record: ProcessRecord) -> bool:
        """Children that it left behind still hold its streams, in the sandbox that lives now."""
        holding = self._namespaces.current()
        return holding is not None and record.lingers(holding.generation)

    # Acting on one

    async def write_stdin(self, process_id: str, data: bytes) -> None:
        record = self._record(process_id)
        if not record.spec()["stdin"]:
            raise errors.Conflict(f"Process {process_id!r} was started without a pipe for its input.")
        gone = errors.ProcessEnded(f"Process {process_id!r} has ended, or its input was closed: it reads no more.")
        try:
            fd = os.open(record.path / "stdin", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # closed and removed, or nobody at the other end
            raise gone from None
        try:
            await _write(fd, data)
        except BrokenPipeError:
            raise gone from None
        finally:
            os.close(fd)

    async def close_stdin(self, process_id: str) -> None:
        record = self._record(process_id)
        spec = record.spec()
        if spec["terminal"]:
            await self.write_stdin(process_id, _END_OF_INPUT)
        elif spec["stdin"] and self._info(record).running:
            (record.path / "stdin").unlink(missing_ok=True)
            await in_thread(self._namespaces.ask, f"close {process_id}")

    async def signal(self, process_id: str, number: int, group: bool) -> None:
        record = self._record(process_id)
        if number not in signals.valid_signals():
            raise errors.Invalid(f"{number} is not the number of a signal.")
        if not group and number in (signals.SIGKILL, signals.SIGTERM):
            lingered = self._lingers(record) and not self._info(record).running
            record.cut()
            if lingered:
                return
        self._must_run(record)
        started = record.started()
        if started is None or not procfs.is_alive(started.leader, started.leader_started):
            raise errors.ProcessEnded(f"Process {process_id!r} has ended.")
        try:
            (os.killpg if group else os.kill)(started.leader, number)
        except ProcessLookupError:
            raise errors.ProcessEnded(f"Process {process_id!r} has ended.") from None

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        record = self._record(process_id)
        if not self._must_run(record).terminal:
            raise errors.Conflict(f"Process {process_id!r} does not run on a terminal.")
        if not (0 < size.rows < 1 << 16 and 0 < size.cols < 1 << 16):
            raise errors.Invalid("A terminal has between 1 and 65535 rows and columns.")
        await in_thread(self._namespaces.ask, f"resize {process_id} {size.rows} {size.cols}")

    def _must_run(self, record: ProcessRecord) -> ProcessInfo:
        info = self._info(record)
        if not info.running:
            raise errors.ProcessEnded(f"Process {info.process_id!r} has ended ({info.status}).")
        return info


class _Watch:
    """Wakes at the moment a process ends, whoever its parent is."""

    def __init__(self, record: ProcessRecord) -> None:
        self._record = record
        self._fd: int | None = None
        self._over = False

    async def end_or(self, seconds: float | None) -> None:
        """Until it ends, or this time has passed. Between its end and the keeper's word on it, a moment."""
        if self._fd is None and not self._over:
            self._fd = self._open(self._record.started())
        if self._fd is None or self._over:
            await asyncio.sleep(_SHORT / 2)
        elif await readable(self._fd, seconds):
            self._over = True

    def _open(self, started: Started | None) -> int | None:
        if started is None:
            return None
        try:
            fd = os.pidfd_open(started.waiter)
        except ProcessLookupError:
            self._over = True
            return None
        if procfs.start_time(started.waiter) != started.waiter_started:
            os.close(fd)
            self._over = True
            return None
        return fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


@contextmanager
def _watched(record: ProcessRecord) -> Iterator[_Watch]:
    watch = _Watch(record)
    try:
        yield watch
    finally:
        watch.close()


async def _write(fd: int, data: bytes) -> None:
    """In pieces that a FIFO takes whole, waiting as long as the process does not read."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view[:_PIPE_PIECE]) :]
        except BlockingIOError:
            await writable(fd)


def _check(spec: ProcessSpec) -> None:
    if not is_safe_name(spec.process_id):
        raise errors.Invalid(f"{spec.process_id[:100]!r} cannot be the id of a process.")
    if not spec.argv:
        raise errors.Invalid("The command is empty.")
    if spec.user not in USERS:
        raise errors.Invalid(f"There is no user {spec.user!r} in this sandbox, only {' and '.join(USERS)}.")
    texts = (*spec.argv, spec.cwd, *spec.env, *spec.env.values())
    if any("\0" in text for text in texts):
        raise errors.Invalid("Commands, paths and variables must not contain a NUL character.")
    if any("=" in name or not name for name in spec.env):
        raise errors.Invalid("The name of a variable must not be empty or contain '='.")
