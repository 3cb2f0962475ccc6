"""Variables that outlast a command: kept in a file of the sandbox that every later shell of its user reads.

The file is a script, so that it needs nothing but a shell: a tool's command sources it, and plain ``run-command``
points ``BASH_ENV`` at it. What a caller gives for one command wins. Only the sandbox's own user reads it: root must
not run what that user wrote.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from paddock import errors
from paddock.tools.bench import Bench
from paddock.tools.excerpt import once

FILE = "environment.sh"
GIVEN = "PADDOCK_GIVEN"
"""Names of the variables that were given for this command alone."""
MAX_BYTES = 256 * 1024


def for_bash(env: Mapping[str, str], home: str = "/home/user") -> dict[str, str]:
    """The environment of a command of bash, so that it has what is remembered besides what is given."""
    return {"BASH_ENV": f"{home}/.paddock/{FILE}", **given(env)}


def given(env: Mapping[str, str]) -> dict[str, str]:
    return {**env, GIVEN: ":".join(env)} if env else {}


def file(bench: Bench) -> str:
    return f"{bench.folder}/{FILE}"


async def remembered(bench: Bench) -> dict[str, str]:
    try:
        chunks = [chunk async for chunk in bench.machine.read_file(file(bench), 0, MAX_BYTES * 3, user=bench.user)]
    except errors.NotFound:
        return {}
    first = b"".join(chunks).decode(errors="replace").partition("\n")[0]
    try:
        found = json.loads(first.removeprefix("# "))
    except ValueError:  # somebody wrote something of their own there
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


async def remember(bench: Bench, variables: Mapping[str, str]) -> None:
    lines = ["# " + json.dumps(dict(variables))]
    for name, value in variables.items():
        lines.append(f'case ":${{{GIVEN}-}}:" in *:{name}:*) ;; *) export {name}={shlex.quote(value)} ;; esac')
    # A shell below this one has them already, and may have changed them.
    lines.append(f"unset BASH_ENV {GIVEN}")
    await bench.machine.write_file(file(bench), once("\n".join([*lines, ""]).encode()), mode=0o600, user=bench.user)
