"""How a process ended, worded like Go's ``os/exec``, because E2B's clients compare the text."""

from __future__ import annotations

from typing import Any

from paddock.machine.base import ProcessInfo, ProcessStatus

_SIGNALS = {
    1: "hangup",
    2: "interrupt",
    3: "quit",
    4: "illegal instruction",
    5: "trace/breakpoint trap",
    6: "aborted",
    7: "bus error",
    8: "floating point exception",
    9: "killed",
    10: "user defined signal 1",
    11: "segmentation fault",
    12: "user defined signal 2",
    13: "broken pipe",
    14: "alarm clock",
    15: "terminated",
}
_KILL = 9


def end_event(info: ProcessInfo) -> dict[str, Any]:
    """The last event of a process's stream."""
    if info.status is ProcessStatus.COMPLETED and info.exit_code is not None:
        status = f"exit status {info.exit_code}"
        error = {"error": status} if info.exit_code else {}
        return {"exitCode": info.exit_code, "exited": True, "status": status, **error}
    number = info.exit_code - 128 if info.exit_code is not None and info.exit_code > 128 else _KILL
    status = f"signal: {_SIGNALS.get(number, f'signal {number}')}"
    return {"exitCode": -1, "exited": False, "status": status, "error": status}
