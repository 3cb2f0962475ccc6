"""What counts as a fork bomb, and what is told when its processes are ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from paddock.providers.base import Notice
from paddock.providers.local.handle import LocalHandle

log = structlog.get_logger(__name__)

_FULL_SHARE = 0.9
_AT_WORK_SHARE = 0.5


def is_full(tasks: int, limit: int) -> bool:
    """So close to the limit of processes and threads that more are hardly possible."""
    return tasks >= _FULL_SHARE * limit


def is_fork_bomb(tasks: int, at_work: int, limit: int) -> bool:
    """Full, and most of its processes want a processor at once. ``at_work``: those that run or wait to."""
    return is_full(tasks, limit) and at_work > _AT_WORK_SHARE * limit


async def end(handle: LocalHandle, notice: Notice, kill: Callable[[], Awaitable[int]]) -> None:
    """``kill``: ends all its processes but the agent, and answers how many."""
    sandbox_id, limit = handle.record.spec.sandbox_id, handle.record.spec.resources.pids
    killed = await kill()
    log.warning("fork bomb: the processes of a sandbox are ended", sandbox_id=sandbox_id, killed=killed)
    message = (
        f"It kept computing and forking at its limit of {limit} processes: a fork bomb. "
        "All its processes were killed; the sandbox can be used."
    )
    data = {"reason": "fork_bomb", "limit": limit, "killed": killed, "message": message}
    await notice(sandbox_id, "processes.killed", data)
