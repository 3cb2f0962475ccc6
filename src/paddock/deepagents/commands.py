"""Commands in the form that deepagents expects: one combined output; exit code 124 and a message at the timeout."""

from __future__ import annotations

import secrets

from deepagents.backends.protocol import ExecuteResponse

from paddock.client.answers import CommandResult
from paddock.client.call import Steps, ask
from paddock.client.calls.files import upload
from paddock.client.calls.processes import read_output, run_command, wait_process
from paddock.errors import Invalid
from paddock.models import CommandStatus
from paddock.models.values import MAX_COMMAND, MAX_HARD_TIMEOUT, MAX_WAIT

TIMED_OUT = 124
NOT_STARTED = 126
MAX_OUTPUT = 10 << 20
"""Maximum bytes of output that are fetched; later output is not read."""
_GRACE = 15.0


def execute(sandbox_id: str, command: str, timeout: float, user: str | None) -> Steps[ExecuteResponse]:
    """``timeout`` 0 means the longest time that a command may run."""
    limit = min(timeout, MAX_HARD_TIMEOUT) or MAX_HARD_TIMEOUT
    try:
        shell = yield from _fitting(sandbox_id, command, user)
        ran = yield from ask(
            run_command(sandbox_id, shell, timeout=min(limit + _GRACE, MAX_WAIT), hard_timeout=limit, user=user)
        )
    except Invalid as error:
        return ExecuteResponse(output=f"Error: {error.message}", exit_code=NOT_STARTED)
    status, code = ran.status, ran.exit_code
    while status is CommandStatus.RUNNING:
        process = yield from ask(wait_process(sandbox_id, ran.process_id, timeout=MAX_WAIT))
        status, code = process.status, process.exit_code
    output, whole = yield from _output(sandbox_id, ran)
    if status is CommandStatus.TIMED_OUT:
        between = "\n" if output and not output.endswith("\n") else ""
        output, code = f"{output}{between}Command timed out after {limit:g} seconds", TIMED_OUT
    return ExecuteResponse(output=output, exit_code=code, truncated=not whole)


def _fitting(sandbox_id: str, command: str, user: str | None) -> Steps[str]:
    """A command that merges both streams in the order of writing. One too long for an argument is sent as a file."""
    shell = f"exec 2>&1\n{command}"
    if len(shell.encode(errors="replace")) <= MAX_COMMAND:
        return shell
    script = f"/tmp/.paddock-command-{secrets.token_hex(8)}"  # noqa: S108 (in the sandbox, and nobody guesses it)
    yield from ask(upload(sandbox_id, script, f"rm -f {script}\n{command}\n".encode(), user=user))
    return f"exec 2>&1\n. {script}"


def _output(sandbox_id: str, ran: CommandResult) -> Steps[tuple[str, bool]]:
    if not ran.truncated and ran.status is not CommandStatus.RUNNING:
        return ran.output, True
    pieces: list[bytes] = []
    offset = size = 0
    whole = True
    while size < MAX_OUTPUT:
        piece = yield from ask(read_output(sandbox_id, ran.process_id, stdout_offset=offset))
        whole = whole and piece.stdout_start <= offset
        pieces.append(piece.raw_stdout)
        size += len(pieces[-1])
        if piece.eof or piece.stdout_offset == offset:
            return b"".join(pieces).decode(errors="replace"), whole
        offset = piece.stdout_offset
    return b"".join(pieces)[:MAX_OUTPUT].decode(errors="replace"), False
