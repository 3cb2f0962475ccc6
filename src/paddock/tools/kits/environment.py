"""Variables, processes and ports of a sandbox."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, Field

from paddock.tools import environment, inspection, running
from paddock.tools.contents import turn
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("environment")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = {"BASH_ENV", environment.GIVEN}

Port = Annotated[int, Field(ge=1, le=65535, description="The port.", examples=[3000])]


class Variables(BaseModel):
    variables: dict[str, str]


class Kept(BaseModel):
    name: str
    value: str | None = Field(description="Null if it was removed.")


@kit.tool("env_get", "Read environment variables", read_only=True, idempotent=True)
async def env_get(
    ctx: ToolContext,
    name: Annotated[str | None, Field(description="Null: all of them.")] = None,
) -> ToolReply[Variables]:
    """The environment that commands see: one variable, or all."""
    ran = await running.run(ctx, ["env", "-0"], what="env")
    found = dict(part.partition("=")[::2] for part in ran.out.split("\0") if "=" in part)
    found = {each: value for each, value in found.items() if each not in (*_RESERVED, "_", "SHLVL", "OLDPWD")}
    if name is not None:
        if name not in found:
            raise ToolFailed(f"There is no variable {name[:80]!r}. Set it with env_set.")
        return ToolReply(found[name] or "(empty)", Variables(variables={name: found[name]}))
    lines = [f"{each}={value}" for each, value in sorted(found.items())]
    return ToolReply("\n".join(lines), Variables(variables=found))


@kit.tool("env_set", "Set an environment variable", idempotent=True)
async def env_set(
    ctx: ToolContext,
    name: Annotated[str, Field(description="Letters, digits and underscores.", examples=["DATABASE_URL"])],
    value: Annotated[str | None, Field(description="Null removes it.")],
) -> ToolReply[Kept]:
    """Set a variable for everything that tools start from now on, or forget it.

    It is kept in the sandbox. What runs already does not see it.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ToolFailed(f"{name[:80]!r} cannot be set. A name has letters, digits and underscores, e.g. MY_TOKEN.")
    if value is not None and "\0" in value:
        raise ToolFailed("A variable cannot hold a NUL character.")
    if value is not None and len(f"{name}={value}".encode(errors="replace")) >= environment.MAX_VARIABLE:
        raise ToolFailed(f"A variable may have {environment.MAX_VARIABLE} bytes. Keep this in a file instead.")
    async with turn(ctx, environment.file(ctx)):
        variables = await environment.remembered(ctx)
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
        if sum(len(each.encode()) + len(text.encode()) for each, text in variables.items()) > environment.MAX_BYTES:
            raise ToolFailed(f"Variables may have {environment.MAX_BYTES} bytes in all. Keep this in a file instead.")
        await environment.remember(ctx, variables)
    said = f"Forgot {name}." if value is None else f"Set {name} for commands that start from now on."
    return ToolReply(said, Kept(name=name, value=value))


class Processes(BaseModel):
    processes: list[inspection.ProcessRow]


@kit.tool("process_list", "List processes", read_only=True, idempotent=True)
async def process_list(
    ctx: ToolContext,
    filter: Annotated[str | None, Field(description="Only those whose command line has this text.")] = None,
) -> ToolReply[Processes]:
    """Every process in the sandbox: its id, parent, memory, CPU time and command line."""
    found = await inspection.processes(ctx)
    if filter is not None:
        found = [process for process in found if filter.lower() in process.command.lower()]
    lines = [
        f"{process.pid:>7} {process.ppid:>7} {process.state} {process.memory // 1024:>8} K "
        f"{process.cpu_seconds:>8.2f} s  {process.command[:200]}"
        for process in found
    ]
    head = f"{'PID':>7} {'PARENT':>7} S {'MEMORY':>10} {'CPU':>10}  COMMAND"
    return ToolReply("\n".join([head, *lines]), Processes(processes=found))


class OpenPort(BaseModel):
    port: int
    address: str = Field(description="Listening address.")
    process: str | None = Field(description="Its process, if visible.")
    pid: int | None
    url: str = Field(description="URL for a browser.")


class Ports(BaseModel):
    ports: list[OpenPort]


class Exposed(BaseModel):
    port: int
    url: str = Field(description="For a browser.")
    program_url: str = Field(description="The same for programs, which cannot resolve names below localhost.")
    listening: bool


@kit.tool("port_list", "List open ports", read_only=True, idempotent=True)
async def port_list(ctx: ToolContext) -> ToolReply[Ports]:
    """The TCP ports on which something listens in the sandbox, with an address for a person to open each."""
    found = [
        OpenPort(port=each.port, address=each.address, process=each.process, pid=each.pid, url=ctx.port_url(each.port))
        for each in await inspection.listening(ctx)
        if not each.own
    ]
    lines = [f"{each.port}  {each.process or ''}  {each.url}" for each in found]
    return ToolReply("\n".join(lines) or "Nothing listens.", Ports(ports=found))


@kit.tool("expose_port", "Get the address of a port", read_only=True, idempotent=True)
async def expose_port(ctx: ToolContext, port: Port) -> ToolReply[Exposed]:
    """The URL at which a person can open a port of the sandbox in a browser: to show a web app that you started.

    Start the server first, with run_command and background.
    """
    listening = any(each.port == port for each in await inspection.listening(ctx))
    url, program_url = ctx.port_url(port), ctx.program_url(port)
    lines = [url, *([f"For programs such as curl or Python: {program_url}"] if program_url != url else [])]
    if not listening:
        lines.append(f"[Nothing listens on port {port} yet: start the server with run_command and background.]")
    return ToolReply("\n".join(lines), Exposed(port=port, url=url, program_url=program_url, listening=listening))
