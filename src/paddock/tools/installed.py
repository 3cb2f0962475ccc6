"""Which tools could do nothing in a sandbox, because the program that they drive is not installed there."""

from __future__ import annotations

from paddock import errors
from paddock.browser import installation
from paddock.ids import new_process_id
from paddock.machine.base import Machine, ProcessSpec
from paddock.tools import running
from paddock.tools.agents import HOMES
from paddock.tools.catalogue import TOOLS

_LOOK_TIMEOUT_S = 10.0
_AGENTS = {"claude": "claude_code", "codex": "codex"}
_LOOK = (
    f"{HOMES}for name in {' '.join(_AGENTS)}; do "
    'command -v "$name" >/dev/null 2>&1 && echo "$name"; done\n' + installation.PRESENCE
)
BROWSER = frozenset(tool.name for tool in TOOLS.values() if tool.kit == "browser")


async def not_installed(machine: Machine, user: str) -> frozenset[str] | None:
    """Names of tools. None: the sandbox did not say."""
    argv = ["/bin/sh", "-c", _LOOK]
    label = f"{running.LABEL}what is installed"
    spec = ProcessSpec(new_process_id(), argv, cwd="/", user=user, hard_timeout=_LOOK_TIMEOUT_S, label=label)
    try:
        ended, stdout, _ = await machine.run(spec, _LOOK_TIMEOUT_S)
    except errors.PaddockError:  # a list is better than none; a call will say what is wrong
        return None
    if ended.exit_code != 0:
        return None
    found = set(stdout.data.decode(errors="replace").split())
    missing = {tool for program, tool in _AGENTS.items() if program not in found}
    return frozenset(missing if "browser" in found else missing | BROWSER)
