"""Deletes a sandbox when the process that made it has ended, however it did: ``python -m paddock.exit_deletion ID``.

Exit handlers do not run in a process that a signal ends. This waits, in a process of its own, for the end of its
standard input, which the kernel closes with the process that made the sandbox. Server and key come by the environment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

_CANCELLED = b"cancelled"


class ExitDeletion:
    def __init__(self, sandbox_id: str, environment: Mapping[str, str]) -> None:
        self._waiting = subprocess.Popen(
            [sys.executable, "-m", "paddock.exit_deletion", sandbox_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,  # a signal to the group of the process that made it is not for this one
        )

    def cancel(self) -> None:
        """The sandbox is deleted already, or is to stay."""
        with suppress(BrokenPipeError):
            self._waiting.communicate(_CANCELLED)


def main() -> None:
    if sys.stdin.buffer.read() == _CANCELLED:
        return
    # Not before it is needed: this waits beside a program for as long as that runs.
    from paddock.client import SyncSandboxClient
    from paddock.errors import SandboxGone, SandboxNotFound

    with SyncSandboxClient() as client, suppress(SandboxNotFound, SandboxGone):
        client.delete_sandbox(sys.argv[1])


if __name__ == "__main__":
    main()
