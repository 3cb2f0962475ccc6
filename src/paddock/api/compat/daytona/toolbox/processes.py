"""Commands and code that run to their end within one request."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter

from paddock import errors
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.charting import charts_of, driver
from paddock.api.compat.daytona.toolbox.inside import Inside, InsideHere, ToolboxRoute, merged
from paddock.machine.base import ProcessInfo, ProcessSpec, ProcessStatus
from paddock.models import Env, Text
from paddock.models.values import MAX_HARD_TIMEOUT

router = APIRouter(prefix="/{sandbox_id}", route_class=ToolboxRoute)

_MAX_OUTPUT = 8 << 20
_MERGED = 'exec "$0" "$@" 2>&1'
_BY_PYTHON = "exec(compile(__import__('sys').stdin.read(), '<driver>', 'exec'), {})"
_TYPESCRIPT = """
for each in tsx ts-node; do
  if command -v "$each" >/dev/null; then exec "$each" "$0" "$@"; fi
done
if node --experimental-strip-types -e '' 2>/dev/null; then
  exec node --no-warnings --experimental-strip-types "$0" "$@"
fi
echo "TypeScript needs tsx, ts-node, or Node.js 22.6 and newer in the sandbox: npm install -g tsx" >&2
exit 127
"""


class Execute(DaytonaRequest):
    command: Text
    cwd: Text | None = None
    envs: Env | None = None
    timeout: int | None = None


class RunCode(DaytonaRequest):
    code: Text
    language: Text = "python"
    argv: list[Text] | None = None
    envs: Env | None = None
    timeout: int | None = None


@router.post("/process/execute")
async def execute(inside: InsideHere, body: Execute) -> dict[str, Any]:
    """Both streams on one, in the order in which they were written. What cannot be started ends with -1."""
    if not body.command.strip():
        raise DaytonaError(400, "empty command", source=DAEMON)
    _no_nul(body.command)
    argv, fed = merged(body.command)
    try:
        spec = inside.spec(
            argv,
            label=body.command,
            cwd=body.cwd,
            env=body.envs,
            stdin=fed is not None,
            hard_timeout=_limit(body.timeout),
        )
        info, output = await _run(inside, spec, fed)
    except (errors.Invalid, errors.PathNotFound, errors.PathConflict, errors.PathDenied) as problem:
        return {"exitCode": -1, "result": problem.message}
    return {"exitCode": _exit_code(info), "result": output}


@router.post("/process/code-run")
async def code_run(inside: InsideHere, body: RunCode) -> dict[str, Any]:
    _no_nul(body.code)
    run = {"python": _python, "javascript": _javascript, "typescript": _typescript}.get(body.language.lower())
    if run is None:
        known = "python, typescript and javascript"
        raise DaytonaError(400, f"Unsupported language {body.language[:50]!r}: there are {known}", source=DAEMON)
    return await run(inside, body)


async def _python(inside: Inside, body: RunCode) -> dict[str, Any]:
    if "matplotlib" not in body.code:
        output = await _code(inside, body, ["python3", "-u", "-c", _BY_PYTHON], driver(body.code, None))
        return {**output, "artifacts": {"charts": []}}
    mark = secrets.token_hex(16)
    output = await _code(inside, body, ["python3", "-u", "-c", _BY_PYTHON], driver(body.code, mark))
    workers, text = inside.workers, output["result"]
    output["result"], charts = await workers.call(len(text), charts_of, text, mark)
    return {**output, "artifacts": {"charts": charts}}


async def _javascript(inside: Inside, body: RunCode) -> dict[str, Any]:
    output = await _code(inside, body, ["node", "-"], body.code.encode(errors="replace"))
    return {**output, "artifacts": {"charts": []}}


async def _typescript(inside: Inside, body: RunCode) -> dict[str, Any]:
    path = f"/tmp/.daytona-{secrets.token_hex(8)}.ts"  # noqa: S108 (in the sandbox)
    await inside.write(path, body.code.encode(errors="replace"))
    try:
        output = await _code(inside, body, ["/bin/bash", "-c", _TYPESCRIPT, path], None)
    finally:
        await inside.machine.remove(path, user=inside.user)
    return {**output, "artifacts": {"charts": []}}


async def _code(inside: Inside, body: RunCode, argv: list[str], fed: bytes | None) -> dict[str, Any]:
    whole = ["/bin/bash", "-c", _MERGED, *argv, *(body.argv or ())]
    limit = _limit(body.timeout)
    spec = inside.spec(whole, label=body.code, env=body.envs, stdin=fed is not None, hard_timeout=limit)
    info, output = await _run(inside, spec, fed)
    return {"exitCode": _exit_code(info), "result": output}


async def _run(inside: Inside, spec: ProcessSpec, fed: bytes | None) -> tuple[ProcessInfo, str]:
    machine = inside.machine
    if fed is not None:
        await machine.spawn(spec)
        try:
            await machine.write_stdin(spec.process_id, fed)
            await machine.close_stdin(spec.process_id)
        except errors.ProcessEnded:
            pass  # it did not want to read all of it; how it ended is told below
    info, output, _ = await machine.run(spec, None, _MAX_OUTPUT)
    data = {"process_id": info.process_id, "command": spec.label, "exit_code": info.exit_code}
    event = ("command.finished", {**data, "status": info.status.value})
    await inside.use.record(commands=1, bytes_out=len(output.data), event=event)
    if info.status is ProcessStatus.TIMED_OUT:
        text = "command execution timeout"
        raise DaytonaError(408, text, "PROCESS_EXECUTION_TIMEOUT", DAEMON)
    return info, output.data.decode(errors="replace")


def _limit(seconds: int | None) -> float | None:
    """None, and 0, are no limit."""
    if seconds is None or seconds == 0:
        return None
    if not 0 < seconds <= MAX_HARD_TIMEOUT:
        raise DaytonaError(400, f"timeout must be between 0 and {MAX_HARD_TIMEOUT:g} seconds", source=DAEMON)
    return float(seconds)


def _exit_code(info: ProcessInfo) -> int:
    return -1 if info.exit_code is None else info.exit_code


def _no_nul(text: str) -> None:
    if "\0" in text:
        raise DaytonaError(400, "a NUL character cannot be part of it", source=DAEMON)
