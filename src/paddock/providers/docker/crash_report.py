"""How a container ended whose agent went away without anybody here having asked for it, as far as its engine tells."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from paddock.providers.common.exit_status import describe
from paddock.providers.docker.engine import DockerEngine, EngineNotFound

_END_TIMEOUT_S = 10.0
"""The engine hears of the end of a process a moment after its sockets are closed."""
_BY_SIGNAL = 128


async def crash_report(engine: DockerEngine, reference: str) -> Mapping[str, Any] | None:
    """The data of the event. None: it runs, and only the way to it was cut; or it was removed."""
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            await engine.ended(reference)
    except (TimeoutError, EngineNotFound):
        return None
    found = await engine.inspect(reference)
    if found is None or found["State"].get("Running"):  # or somebody has started it again
        return None
    code, oom_killed = int(found["State"].get("ExitCode", -1)), bool(found["State"].get("OOMKilled"))
    killed = code == _BY_SIGNAL + signal.SIGKILL
    reason = "out_of_memory" if killed and oom_killed else "killed" if killed else "crashed"
    why = " The kernel had killed processes in it for want of memory." if oom_killed else ""
    message = f"The sandbox's agent {_ended(code)}.{why} Its files are kept; the next use starts it again."
    return {"reason": reason, "exit_code": code, "oom_killed": oom_killed, "message": message}


def _ended(code: int) -> str:
    number = code - _BY_SIGNAL
    by_signal = number in set(signal.Signals)
    return describe(number if by_signal else (code & 0xFF) << 8)
