"""Commands and code that run to their end within one request."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from paddock import errors
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.charting import driver, with_charts
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute, merged
from paddock.api.compat.daytona.toolbox.output import CommandOutput, json_text, run
from paddock.machine.base import ProcessInfo, ProcessSpec, ProcessStatus
from paddock.models import Env, Text
from paddock.models.values import MAX_HARD_TIMEOUT

router = APIRouter(prefix="/{sandbox_id}", route_class=ToolboxRoute)

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


class ExecuteCommand(DaytonaRequest):
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
async def execute(inside: InsideHere, body: ExecuteCommand) -> Response:
    """Both streams are merged in the order of writing. The exit code is -1 if the command cannot be started."""
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
        ran = await _run(inside, spec, fed)
    except (errors.Invalid, errors.PathNotFound, errors.PathConflict, errors.PathDenied) as problem:
        return JSONResponse({"exitCode": -1, "result": problem.message})
    return _answer(inside, ran, await json_text(ran.note, ran.output))


@router.post("/process/code-run")
async def code_run(inside: InsideHere, body: RunCode) -> Response:
    _no_nul(body.code)
    run_it = {"python": _python, "javascript": _javascript, "typescript": _typescript}.get(body.language.lower())
    if run_it is None:
        known = "python, typescript and javascript"
        raise DaytonaError(400, f"Unsupported language {body.language[:50]!r}: there are {known}", source=DAEMON)
    return await run_it(inside, body)


async def _python(inside: ToolboxContext, body: RunCode) -> Response:
    argv = ["python3", "-u", "-c", _BY_PYTHON]
    if "matplotlib" not in body.code:
        return await _without_charts(inside, await _code(inside, body, argv, driver(body.code, None)))
    mark = secrets.token_hex(16)
    ran = await _code(inside, body, argv, driver(body.code, mark))
    size = len(ran.output)
    result, charts = await inside.workers.call(size, with_charts, ran.output, mark, ran.note)
    return _answer(inside, ran, result, charts)


async def _javascript(inside: ToolboxContext, body: RunCode) -> Response:
    ran = await _code(inside, body, ["node", "-"], body.code.encode(errors="replace"))
    return await _without_charts(inside, ran)


async def _typescript(inside: ToolboxContext, body: RunCode) -> Response:
    path = f"/tmp/.daytona-{secrets.token_hex(8)}.ts"  # noqa: S108 (in the sandbox)
    await inside.write(path, body.code.encode(errors="replace"))
    try:
        ran = await _code(inside, body, ["/bin/bash", "-c", _TYPESCRIPT, path], None)
    finally:
        await inside.machine.remove(path, user=inside.user)
    return await _without_charts(inside, ran)


async def _code(inside: ToolboxContext, body: RunCode, argv: list[str], fed: bytes | None) -> CommandOutput:
    whole = ["/bin/bash", "-c", _MERGED, *argv, *(body.argv or ())]
    limit = _limit(body.timeout)
    spec = inside.spec(whole, label=body.code, env=body.envs, stdin=fed is not None, hard_timeout=limit)
    return await _run(inside, spec, fed)


async def _run(inside: ToolboxContext, spec: ProcessSpec, fed: bytes | None) -> CommandOutput:
    ran = await run(inside, spec, fed)
    info = ran.info
    data = {"process_id": info.process_id, "command": spec.label, "exit_code": info.exit_code}
    event = ("command.finished", {**data, "status": info.status.value})
    await inside.use.record(commands=1, bytes_out=len(ran.output), event=event)
    if info.status is ProcessStatus.TIMED_OUT:
        text = "command execution timeout"
        raise DaytonaError(408, text, "PROCESS_EXECUTION_TIMEOUT", DAEMON)
    return ran


async def _without_charts(inside: ToolboxContext, ran: CommandOutput) -> Response:
    return _answer(inside, ran, await json_text(ran.note, ran.output), b"[]")


def _answer(inside: ToolboxContext, ran: CommandOutput, result: bytes, charts: bytes | None = None) -> Response:
    artifacts = b"" if charts is None else b',"artifacts":{"charts":%b}' % charts
    body = b'{"exitCode":%d,"result":%b%b}' % (_exit_code(ran.info), result, artifacts)
    inside.caller.holding.extend(len(body))  # the command has run, so its result must be returned
    return Response(body, media_type="application/json")


def _limit(seconds: int | None) -> float | None:
    """None and 0 mean no limit."""
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
