"""Commands and processes inside a sandbox."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddock.client.answers import (
    CommandResult,
    Done,
    Ended,
    Output,
    Process,
    ProcessEvent,
    ProcessOutput,
    Started,
)
from paddock.client.call import ApiCall, StreamCall, answer, event, given, listed, nothing
from paddock.client.calls.sandboxes import SERVER_COMMAND_TIMEOUT, idempotency, sandbox_path
from paddock.client.errors import from_event
from paddock.client.retry import Repeat
from paddock.client.sse import EventDecoder, ServerSentEvent
from paddock.client.terminal import TerminalCall


def run_command(
    sandbox_id: str,
    command: str,
    background: bool = False,
    timeout: float | None = None,
    *,
    hard_timeout: float | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    idempotency_key: str | None = None,
) -> ApiCall[CommandResult]:
    """Run a command in a shell and wait for its end.

    A failing command is an answer (see ``exit_code``), not an error. After ``timeout`` seconds the answer is
    ``running`` and the command continues; after ``hard_timeout`` it is killed. A lost answer is requested again with
    the same idempotency key, so the command never runs twice.
    """
    return ApiCall(
        method="POST",
        path="/sandboxes/run-command",
        json=given(
            sandbox_id=sandbox_id,
            command=command,
            background=background,
            timeout=timeout,
            hard_timeout=hard_timeout,
            cwd=cwd,
            env=env,
            user=user,
        ),
        headers=idempotency(idempotency_key),
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(CommandResult),
    )


def stream_command(
    sandbox_id: str,
    command: str,
    *,
    timeout: float | None = None,
    hard_timeout: float | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    idempotency_key: str | None = None,
) -> StreamCall[ProcessEvent]:
    """Run a command and stream its events: ``started``, ``output`` chunks, then ``exit``.

    After a lost connection the stream is resumed where it stopped.
    """
    return StreamCall(
        call=ApiCall(
            method="POST",
            path="/sandboxes/run-command",
            json=given(
                sandbox_id=sandbox_id,
                command=command,
                timeout=timeout,
                hard_timeout=hard_timeout,
                cwd=cwd,
                env=env,
                user=user,
                stream=True,
            ),
            headers=idempotency(idempotency_key),
            read=nothing,
        ),
        decoder=lambda: _ProcessEvents(sandbox_id),
    )


def start_process(
    sandbox_id: str,
    command: str | None = None,
    *,
    argv: Sequence[str] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    stdin: bool = False,
    terminal: Mapping[str, int] | None = None,
    hard_timeout: float | None = None,
) -> ApiCall[Process]:
    """Start ``command`` (run by a shell) or ``argv`` (run directly) without waiting for it. Never retried."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "processes"),
        json=given(
            command=command,
            argv=None if argv is None else list(argv),
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            terminal=terminal,
            hard_timeout=hard_timeout,
        ),
        read=answer(Process),
        repeat=Repeat.UNSENT,
    )


def list_processes(sandbox_id: str) -> ApiCall[list[Process]]:
    """All known processes, including ended ones; oldest first."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "processes"), read=listed(Process, "processes"))


def get_process(sandbox_id: str, process_id: str) -> ApiCall[Process]:
    return ApiCall(method="GET", path=_path(sandbox_id, process_id), read=answer(Process))


def read_output(
    sandbox_id: str,
    process_id: str,
    *,
    stdout_offset: int = 0,
    stderr_offset: int = 0,
    wait: float | None = None,
    limit: int | None = None,
) -> ApiCall[ProcessOutput]:
    """Output from these offsets; with ``wait``, waits up to that many seconds for new output."""
    return ApiCall(
        method="GET",
        path=_path(sandbox_id, process_id, "output"),
        params=given(stdout_offset=stdout_offset, stderr_offset=stderr_offset, wait=wait, limit=limit),
        server_wait=wait or 0.0,
        read=answer(ProcessOutput),
    )


def write_stdin(sandbox_id: str, process_id: str, data: str | bytes = "", *, close: bool = False) -> ApiCall[Done]:
    """Write to a process that was started with ``stdin``. Never retried."""
    body: dict[str, Any] = {"close": close}
    if isinstance(data, bytes):
        body["data_base64"] = base64.b64encode(data).decode()
    else:
        body["data"] = data
    return ApiCall(
        method="POST",
        path=_path(sandbox_id, process_id, "stdin"),
        json=body,
        read=answer(Done),
        repeat=Repeat.UNSENT,
    )


def send_signal(sandbox_id: str, process_id: str, signal: str = "SIGTERM") -> ApiCall[Done]:
    """Signal the whole process group. Never retried."""
    return ApiCall(
        method="POST",
        path=_path(sandbox_id, process_id, "signal"),
        json={"signal": signal},
        read=answer(Done),
        repeat=Repeat.UNSENT,
    )


def wait_process(sandbox_id: str, process_id: str, *, timeout: float | None = None) -> ApiCall[Process]:
    """Wait until the process has ended, at most ``timeout`` seconds; returns its state."""
    return ApiCall(
        method="POST",
        path=_path(sandbox_id, process_id, "wait"),
        params=given(timeout=timeout),
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(Process),
    )


def stream_process(
    sandbox_id: str, process_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0
) -> StreamCall[ProcessEvent]:
    """Follow a process from these offsets: ``output`` chunks, then ``exit``."""
    return _follow(sandbox_id, process_id, f"{stdout_offset}.{stderr_offset}")


def _follow(sandbox_id: str, process_id: str, position: str) -> StreamCall[ProcessEvent]:
    return StreamCall(
        call=ApiCall(
            method="GET",
            path=_path(sandbox_id, process_id, "stream"),
            headers={"Last-Event-ID": position},
            read=nothing,
        ),
        decoder=lambda: _ProcessEvents(sandbox_id, process_id, position),
    )


def _path(sandbox_id: str, process_id: str, *parts: str) -> str:
    return sandbox_path(sandbox_id, "processes", process_id, *parts)


class _ProcessEvents:
    """Follows one process, over several connections if necessary."""

    def __init__(self, sandbox_id: str, process_id: str = "", position: str = "") -> None:
        self._sandbox_id = sandbox_id
        self._process_id = process_id
        self._position = position
        self._decoder = EventDecoder()
        self.complete = False

    def feed(self, chunk: bytes) -> Iterable[ProcessEvent]:
        for sent in self._decoder.feed(chunk):
            self._position = sent.id or self._position
            if (item := self._read(sent)) is not None:
                yield item

    def resume(self) -> StreamCall[ProcessEvent] | None:
        if not self._process_id:
            return None
        return _follow(self._sandbox_id, self._process_id, self._position or "0.0")

    def _read(self, sent: ServerSentEvent) -> ProcessEvent | None:
        match sent.event:
            case "started":
                started = event(Started, sent.data)
                self._process_id = started.process_id
                return started
            case "output":
                return event(Output, sent.data)
            case "exit":
                self.complete = True
                return event(Ended, sent.data)
            case "error":
                raise from_event(sent.data)
        return None


def terminal(
    sandbox_id: str,
    command: str | None = None,
    *,
    rows: int | None = None,
    cols: int | None = None,
    cwd: str | None = None,
    user: str | None = None,
    process_id: str | None = None,
    offset: int | None = None,
) -> TerminalCall:
    """A login shell (or ``command``) on a PTY, as a context manager: write to it, and iterate over its output.

    The process keeps running when the context is left. ``process_id`` attaches to a running process, and ``offset`` is
    the first byte of its output to be sent; the other arguments then have no effect.
    """
    return TerminalCall(
        sandbox_id,
        given(command=command, rows=rows, cols=cols, cwd=cwd, user=user, process_id=process_id, offset=offset),
    )
