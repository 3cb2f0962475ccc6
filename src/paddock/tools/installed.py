"""Which tools cannot work in a sandbox, because the program that they need is not installed there."""

from __future__ import annotations

from paddock import errors
from paddock.browser import installation
from paddock.ids import new_process_id
from paddock.machine.base import Machine, ProcessSpec
from paddock.tools import running
from paddock.tools.agents import HOMES
from paddock.tools.catalogue import TOOLS

_CHECK_TIMEOUT_S = 10.0
_AGENTS = {"claude": "claude_code", "codex": "codex"}
_CHECK_SCRIPT = (
    f"{HOMES}for name in {' '.join(_AGENTS)}; do "
    'command -v "$name" >/dev/null 2>&1 && echo "$name"; done\n' + installation.PRESENCE
)
BROWSER = frozenset(tool.name for tool in TOOLS.values() if tool.kit == "browser")


async def not_installed(machine: Machine, user: str) -> frozenset[str] | None:
    """Names of the tools. None if the check failed."""
    argv = ["/bin/sh", "-c", _CHECK_SCRIPT]
    label = f"{running.LABEL}what is installed"
    spec = ProcessSpec(new_process_id(), argv, cwd="/", user=user, hard_timeout=_CHECK_TIMEOUT_S, label=label)
    try:
        ended, stdout, _ = await machine.run(spec, _CHECK_TIMEOUT_S)
    except errors.PaddockError:  # calls report what is wrong; the list is shown anyway
        return None
    if ended.exit_code != 0:
        return None
    found = set(stdout.data.decode(errors="replace").split())
    missing = {tool for program, tool in _AGENTS.items() if program not in found}
    return frozenset(missing if "browser" in found else missing | BROWSER)
