"""``paddock logs``: the output of a process or service of a sandbox."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.exec import INTERRUPTED
from paddock.cli.session import CliSession, command
from paddock.errors import ProcessNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.client import Process, SyncSandboxClient

_OWN = (
    "paddock tool: ",
    "interpreter: ",
    "browser: ",
    "vscode: ",
    "find a language server",
    "service code-interpreter #",
)
"""Label prefixes of processes that Paddock starts for itself. They are shown only if named."""
_NAMED = ("service", "mcp server", "shell")
"""Label prefixes of processes that users know by name."""


@command
def logs(
    session: CliSession,
    sandbox_id: SandboxId,
    process: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROCESS]",
            help="A process id, or the name of a service, MCP server or shell. [default: the newest process]",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the process ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, metavar="LINES", help="Only the last lines of each stream.")
    ] = None,
) -> None:
    """Show the output of a process or service. With --follow, --json prints one document per line."""
    found = _find(session.client.list_processes(sandbox_id), sandbox_id, process)
    if found is None:
        empty = {"process": None, "stdout": "", "stderr": "", "missing": 0}
        session.answer(empty, lambda: output.note("No process has run in it yet."))
        return
    if follow and tail is None:
        _follow(session, sandbox_id, found, 0, 0)
        return
    kept = _read(session.client, sandbox_id, found)
    if tail is not None:
        kept = kept.last_lines(tail)
    if follow:
        _follow(session, sandbox_id, found, kept.stdout_end - len(kept.stdout), kept.stderr_end - len(kept.stderr))
        return
    session.answer(kept.document(found), kept.show)


@dataclass(frozen=True, slots=True)
class _StoredOutput:
    """The stored output of both streams, and the offset at which each ends."""

    stdout: bytes
    stderr: bytes
    stdout_end: int
    stderr_end: int
    missing: int

    def last_lines(self, count: int) -> _StoredOutput:
        return _StoredOutput(
            _last_lines(self.stdout, count), _last_lines(self.stderr, count), self.stdout_end, self.stderr_end, 0
        )

    def document(self, process: Process) -> dict[str, Any]:
        texts = {"stdout": self.stdout.decode(errors="replace"), "stderr": self.stderr.decode(errors="replace")}
        return {"process": process, **texts, "missing": self.missing}

    def show(self) -> None:
        _write("stdout", self.stdout)
        _write("stderr", self.stderr)
        _warn_of_loss(self.missing)


def _find(processes: Sequence[Process], sandbox_id: str, named: str | None) -> Process | None:
    """The newest process that matches. None if no name was given and no process exists."""
    newest_first = list(reversed(processes))
    if named is None:
        return next((each for each in newest_first if not each.label.startswith(_OWN)), None)
    begins = tuple(f"{kind} {named} #" for kind in _NAMED)
    for each in newest_first:
        if each.process_id == named or each.label.startswith(begins):
            return each
    raise ProcessNotFound(
        f"No process of {sandbox_id!r} has the id or name {named!r}. "
        f"`paddock inspect {sandbox_id}` lists its processes; a service has none before its port was used."
    )


def _read(client: SyncSandboxClient, sandbox_id: str, process: Process) -> _StoredOutput:
    """All output stored so far. Output written during the call may be missing."""
    stdout, stderr = bytearray(), bytearray()
    stdout_end = stderr_end = missing = 0
    while True:
        part = client.read_output(sandbox_id, process.process_id, stdout_offset=stdout_end, stderr_offset=stderr_end)
        stdout += part.raw_stdout
        stderr += part.raw_stderr
        missing += part.stdout_skipped + part.stderr_skipped
        went_on = (part.stdout_offset, part.stderr_offset) != (stdout_end, stderr_end)
        stdout_end, stderr_end = part.stdout_offset, part.stderr_offset
        whole = stdout_end >= process.stdout_size and stderr_end >= process.stderr_size
        if part.eof or whole or not went_on:
            return _StoredOutput(bytes(stdout), bytes(stderr), stdout_end, stderr_end, missing)


def _follow(session: CliSession, sandbox_id: str, process: Process, stdout_offset: int, stderr_offset: int) -> None:
    events = session.client.stream_process(
        sandbox_id, process.process_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
    )
    missing = 0
    try:
        for event in events:
            if session.json:
                output.print_line_json(event)
            elif event.type == "output":
                missing += event.skipped
                _write(event.stream, event.raw)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not session.json:
        _warn_of_loss(missing)


def _write(stream: str, data: bytes) -> None:
    """Write the bytes unchanged."""
    file = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
    file.write(data)
    file.flush()


def _warn_of_loss(missing: int) -> None:
    if missing:
        output.note(f"Warning: {output.size(missing)} of output are missing here: a sandbox keeps the latest of it.")


def _last_lines(text: bytes, count: int) -> bytes:
    return b"".join(text.splitlines(keepends=True)[-count:]) if count else b""
