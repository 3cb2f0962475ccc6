"""Python: stateful code execution, and packages."""

from __future__ import annotations

import asyncio
import base64
import binascii
import shlex
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from paddock.interpreter import PORT
from paddock.redaction import without_colours
from paddock.tools import environment, running
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import excerpt
from paddock.tools.tool import Picture, ToolFailed, ToolKit, ToolReply

if TYPE_CHECKING:
    from paddock.interpreter.client import InterpreterClient

kit = ToolKit("python")

_MAX_PICTURES = 8
_MAX_SHOWN = 200
_MAX_FORMATS = 20
_MAX_PICTURE = 5 << 20
_GATHERED = 4 << 20
"""Maximum characters of output that are kept."""


class PythonError(BaseModel):
    name: str
    value: str
    traceback: str


class Shown(BaseModel):
    text: str | None
    formats: list[str] = Field(description="Its other formats: html, png, json …")


class Executed(BaseModel):
    result: str | None = Field(description="The value of the last expression.")
    stdout: str
    stderr: str
    error: PythonError | None = Field(description="The exception, if any.")
    displayed: list[Shown] = Field(description="Everything displayed: tables, plots, the result.")
    timed_out: bool
    output_file: str | None = Field(description="File with the whole output, if it was too long.")


class Installed(BaseModel):
    packages: list[str] = Field(description="Names and versions, as reported by pip.")
    output: str


@dataclass
class _Run:
    texts: dict[str, list[str]] = field(default_factory=lambda: {"stdout": [], "stderr": []})
    room: dict[str, int] = field(default_factory=lambda: {"stdout": _GATHERED, "stderr": _GATHERED})
    shown: list[Shown] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    result: str | None = None
    error: PythonError | None = None
    timed_out: bool = False

    def hear(self, output: Mapping[str, Any]) -> None:
        match output["type"]:
            case "stdout" | "stderr" as stream:
                text = str(output.get("text", ""))[: self.room[stream]]
                self.room[stream] -= len(text)
                if text:
                    self.texts[stream].append(text)
            case "error":
                said = {name: without_colours(str(output.get(name, ""))) for name in ("name", "value", "traceback")}
                self.error = PythonError.model_validate(said)
            case "result":
                self._show(output)

    def _show(self, output: Mapping[str, Any]) -> None:
        text = output.get("text")
        text = None if text is None else str(text)
        known = {"type", "text", "is_main_result", "extra"}
        if len(self.shown) < _MAX_SHOWN:
            formats = sorted(name for name in output.keys() - known if output[name])
            self.shown.append(Shown(text=text, formats=formats[:_MAX_FORMATS]))
        if output.get("is_main_result"):
            self.result = text
        for form in ("png", "jpeg"):
            if output.get(form) and len(self.pictures) < _MAX_PICTURES:
                try:
                    data = base64.b64decode(str(output[form]))
                except binascii.Error:
                    continue
                if len(data) <= _MAX_PICTURE:
                    self.pictures.append(Picture(data, f"image/{form}"))
                    return


@kit.tool("run_python", "Run Python", langchain="python_exec", destructive=True, open_world=True)
async def run_python(
    ctx: ToolContext,
    code: Annotated[str, Field(min_length=1, description="Python, as in a notebook's cell.", examples=["1 + 1"])],
    timeout: Annotated[float, Field(gt=0, le=3600, description="Seconds after which it is interrupted.")] = 120,
    restart: Annotated[bool, Field(description="Delete all earlier definitions first.")] = False,
) -> ToolReply[Executed]:
    """Run Python in a session that remembers variables, imports and functions, as a notebook does.

    Answers with what is printed, the value of the last expression, matplotlib's plots as pictures, and an exception's
    traceback. Runs in /workspace; `!` and `%` magics work. For packages use pip_install.
    """
    from paddock.interpreter.client import InterpreterClient  # imports an HTTP client

    interpreter = InterpreterClient(lambda: ctx.reach(PORT), ctx.workers, ctx.hold)
    if restart:
        await _restart(interpreter, ctx.workspace)
    run = _Run()
    outputs = interpreter.execute(
        code, language="python", context_id=None, env=await environment.remembered(ctx), cwd=ctx.workspace
    )
    await _until(ctx, outputs, run, timeout)
    room = {"stdout": ctx.inline * 2 // 3, "stderr": ctx.inline // 3}
    cut = {name: await excerpt(ctx, "".join(run.texts[name]), f"python-{name}", room[name]) for name in room}
    result = None if run.result is None else await excerpt(ctx, run.result, "python-result")
    files = [each.file for each in (*cut.values(), result) if each is not None and each.file]
    data = Executed(
        result=result and result.text,
        stdout=cut["stdout"].text,
        stderr=cut["stderr"].text,
        error=run.error,
        displayed=[shown.model_copy(update={"text": (shown.text or "")[:4000]}) for shown in run.shown],
        timed_out=run.timed_out,
        output_file=files[0] if files else None,
    )
    return ToolReply(_tell(data, run, timeout), data, tuple(run.pictures))


async def _until(ctx: ToolContext, outputs: Any, run: _Run, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    begun = told = loop.time()
    async with aclosing(outputs):
        while True:
            try:
                async with asyncio.timeout_at(begun + seconds):
                    output = await anext(outputs)
            except StopAsyncIteration:
                return
            except TimeoutError:
                run.timed_out = True
                return
            run.hear(output)
            # While the code prints nothing, keepalives arrive every few seconds, so progress can be reported.
            if loop.time() - told >= running.BEAT:
                told = loop.time()
                await ctx.progress(f"Running: {told - begun:.0f} s.")


async def _restart(interpreter: InterpreterClient, cwd: str) -> None:
    for context in await interpreter.contexts():
        if (context.get("language"), context.get("cwd")) == ("python", cwd):
            await interpreter.restart_context(str(context["id"]))
            return


def _tell(data: Executed, run: _Run, seconds: float) -> str:
    parts = [data.stdout.rstrip("\n")] if data.stdout.strip() else []
    if data.stderr.strip():
        parts.append(f"[stderr]\n{data.stderr.rstrip()}")
    parts += [shown.text for shown in run.shown if shown.text and shown.text != run.result]
    if data.result is not None:
        parts.append(data.result)
    if data.error is not None:
        parts.append(data.error.traceback or f"{data.error.name}: {data.error.value}")
    if data.timed_out:
        parts.append(f"[interrupted after {seconds:g} s; what was defined until then stays. Set a longer timeout]")
    if run.pictures:
        parts.append(f"[{len(run.pictures)} picture{'s' if len(run.pictures) > 1 else ''}]")
    return "\n".join(parts) or "(no output)"


@kit.tool("pip_install", "Install Python packages", open_world=True, idempotent=True)
async def pip_install(
    ctx: ToolContext,
    packages: Annotated[
        list[str],
        Field(min_length=1, max_length=100, description="As for pip: names, versions, wheels, `-r file` as one item."),
    ],
    upgrade: Annotated[bool, Field(description="Also upgrade installed ones.")] = False,
    timeout: Annotated[float, Field(gt=0, le=3600, description="Seconds after which it is killed.")] = 600,
) -> ToolReply[Installed]:
    """Install Python packages for the sandbox's user: commands and run_python can import them at once."""
    words: list[str] = []
    for package in packages:
        if package.startswith("-r "):
            words += ["-r", ctx.path(package[3:].strip())]
        elif package.startswith("-"):
            raise ToolFailed(f"{package[:80]!r} is an option, not a package. For options use run_command with pip.")
        else:
            words.append(package)
    argv = ["python3", "-m", "pip", "install", *(["--upgrade"] if upgrade else []), *words]
    env = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ran = await running.run(ctx, argv, what="pip install", env=env, seconds=timeout)
    running.needs(ran, "python3", "Use a template that has Python.")
    if not ran.ok:
        said = (ran.err.strip() or ran.out.strip())[-3000:]
        raise ToolFailed(f"pip could not install {shlex.join(packages)[:300]}:\n{said}\n{_hint(said)}".rstrip())
    cut = await excerpt(ctx, ran.out, "pip")
    found = [line for line in ran.out.splitlines() if line.startswith("Successfully installed ")]
    named = found[-1].removeprefix("Successfully installed ").split() if found else []
    return ToolReply(
        found[-1] if found else "Everything was there already.", Installed(packages=named, output=cut.text)
    )


def _hint(said: str) -> str:
    if "No module named pip" in said:
        return "Install pip first: run_command with `python3 -m ensurepip --user`, or the system's package python3-pip."
    if "Tunnel connection failed: 502" in said:
        return "The egress rules allow the package index, but it could not be reached: does its name resolve?"
    if "403" in said or "Tunnel connection failed" in said or "Failed to establish" in said:
        return "The sandbox may not reach the package index: its egress rules must allow it, or PIP_INDEX_URL another."
    if "No matching distribution" in said:
        return "Check the name and the version."
    return ""
