"""Variables that persist between calls: stored in a file of the sandbox that commands of later tools read.

The file is a shell script, so that it needs nothing but a shell. Variables given for one command take precedence. Only
the sandbox's own user reads it: root must not run what that user wrote. The plain ``run-command`` route does not read
it: its environment is that of the sandbox and the request, and most of its commands need no shell.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from paddock import errors, json_limits
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once

FILE = "environment.sh"
GIVEN = "PADDOCK_GIVEN"
"""Names of the variables that were given for this command only."""
MAX_BYTES = 256 * 1024
MAX_VARIABLE = 128 * 1024
"""In bytes. With a longer one the kernel starts no program (MAX_ARG_STRLEN)."""


def given(env: Mapping[str, str]) -> dict[str, str]:
    return {**env, GIVEN: ":".join(env)} if env else {}


def file(ctx: ToolContext) -> str:
    return f"{ctx.folder}/{FILE}"


async def remembered(ctx: ToolContext) -> dict[str, str]:
    try:
        chunks = [chunk async for chunk in ctx.machine.read_file(file(ctx), 0, MAX_BYTES * 3, user=ctx.user)]
    except errors.NotFound:
        return {}
    first = b"".join(chunks).decode(errors="replace").partition("\n")[0]
    try:
        found = json_limits.loads(first.removeprefix("# ").encode())
    except (ValueError, errors.Invalid):  # the user has changed the file
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


async def remember(ctx: ToolContext, variables: Mapping[str, str]) -> None:
    lines = ["# " + json.dumps(dict(variables))]
    for name, value in variables.items():
        lines.append(f'case ":${{{GIVEN}-}}:" in *:{name}:*) ;; *) export {name}={shlex.quote(value)} ;; esac')
    # Shells started by this one have them already, and may have changed them.
    lines.append(f"unset {GIVEN}")
    await ctx.machine.write_file(file(ctx), once("\n".join([*lines, ""]).encode()), mode=0o600, user=ctx.user)
