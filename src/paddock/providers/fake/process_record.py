"""What is on disk about one process: what was asked for, who it became, how it ended."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.machine.base import ProcessInfo, ProcessSpec, ProcessStatus, Stream
from paddock.providers.fake import output
from paddock.providers.fake.view import environment, inner_command


@dataclass(frozen=True, slots=True)
class Started:
    """Host pids with their start times, so that a reused pid is never taken for it."""

    waiter: int
    """The nsenter that waits for it; it ends when the process ends."""
    waiter_started: int
    leader: int
    """The process itself, which leads its own session and group."""
    leader_started: int
    pid_inside: int


@dataclass(frozen=True, slots=True)
class Ended:
    status: ProcessStatus
    exit_code: int
    cpu_seconds: float
    at: float
    """By the file system's clock."""


class ProcessRecord:
    """A folder: ``spec.json`` and ``command`` from the server, ``started``, ``status`` and output from the keeper."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def process_id(self) -> str:
        return self.path.name

    def publish(self, spec: ProcessSpec, env: Mapping[str, str], *, at: float, generation: str) -> bool:
        """All of it appears at once under its name; False when another was first."""
        self.path.parent.mkdir(exist_ok=True)
        draft = self.path.parent / f".{self.path.name}-{secrets.token_hex(4)}"
        draft.mkdir(0o700)
        described = {
            "label": spec.label,
            "started_at": at,
            "terminal": spec.terminal is not None,
            "stdin": spec.stdin or spec.terminal is not None,
            "generation": generation,
        }
        (draft / "spec.json").write_text(json.dumps(described))
        (draft / "command").write_bytes(_command(spec, env))
        if spec.note:
            (draft / "note").write_bytes(spec.note)
        if described["stdin"]:
            os.mkfifo(draft / "stdin", 0o600)
        try:
            draft.rename(self.path)
        except OSError:
            for leftover in draft.iterdir():
                leftover.unlink()
            draft.rmdir()
            return False
        return True

    def spec(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / "spec.json").read_text())
        except FileNotFoundError:
            raise errors.ProcessNotFound(
                f"There is no process {self.process_id!r} in this sandbox.", details={"process_id": self.process_id}
            ) from None
        return found

    def note(self) -> bytes:
        self.spec()
        try:
            return (self.path / "note").read_bytes()
        except FileNotFoundError:
            return b""

    def cut(self) -> None:
        """It is being ended from outside: nobody waits any more for what its children write."""
        (self.path / "cut").touch()

    def lingers(self, generation: str) -> bool:
        """Its streams are open, and not all who may write to them were told to end."""
        over = (self.path / "closed").exists() or (self.path / "cut").exists()
        ended = self.ended()
        timed_out = ended is not None and ended.status is ProcessStatus.TIMED_OUT
        return not over and not timed_out and generation == self.spec()["generation"]

    def started(self) -> Started | None:
        text = self._text("started")
        return Started(*map(int, text.split())) if text else None

    def ended(self) -> Ended | None:
        text = self._text("status")
        if not text:
            return None
        how, code, cpu = text.split()
        number = int(code)
        at = (self.path / "status").stat().st_mtime
        if how == "exited":
            return Ended(ProcessStatus.COMPLETED, number, float(cpu), at)
        status = ProcessStatus.TIMED_OUT if how == "timed_out" else ProcessStatus.KILLED
        return Ended(status, 128 + number, float(cpu), at)

    def refused(self) -> str | None:
        """Why the keeper could not even begin."""
        return self._text("refused")

    def info(self, generation: str | None) -> ProcessInfo:
        """As it is now, where ``generation`` is the keeper that lives now."""
        spec = self.spec()
        started = self.started()
        ended = self.ended()
        status = ended.status if ended else ProcessStatus.RUNNING
        if not ended and (generation != spec["generation"] or self.refused() is not None):
            ended = self.ended()
            status = ended.status if ended else ProcessStatus.LOST
        # Only the wall clock is injected: how long it took is real, and counted from when it started by that clock.
        began = (self.path / "command").stat().st_mtime
        return ProcessInfo(
            process_id=self.process_id,
            status=status,
            exit_code=ended.exit_code if ended else None,
            pid=started.pid_inside if started else None,
            label=spec["label"],
            started_at=spec["started_at"],
            ended_at=spec["started_at"] + max(0.0, ended.at - began) if ended else None,
            stdout_size=output.size(self.path, Stream.STDOUT),
            stderr_size=output.size(self.path, Stream.STDERR),
            terminal=spec["terminal"],
        )

    def _text(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            return None


def _command(spec: ProcessSpec, env: Mapping[str, str]) -> bytes:
    """What the keeper reads: rows, columns, stdin, hard timeout, then the command line; NUL between them."""
    terminal = spec.terminal
    size = [str(terminal.rows), str(terminal.cols)] if terminal else ["", ""]
    timeout = "" if spec.hard_timeout is None else repr(float(spec.hard_timeout))
    full = environment(env, spec.env, terminal=terminal is not None)
    argv = inner_command(list(spec.argv), spec.cwd, full, terminal=terminal is not None)
    return b"\0".join(os.fsencode(part) for part in [*size, "1" if spec.stdin else "", timeout, *argv])
