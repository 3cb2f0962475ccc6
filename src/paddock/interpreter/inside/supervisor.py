"""The supervisor: owns the listening socket and restarts the server when it ends.

It does as little as possible, so that it does not fail. All other processes end with it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from argparse import Namespace

from .commandline import words

_SHORT_RUN_S = 1.0
_MAX_PAUSE_S = 5.0


def main(options: Namespace) -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", options.port))
    listening.listen(128)
    os.set_inheritable(listening.fileno(), True)
    pause = 0.0
    while True:
        begun = time.monotonic()
        _, status = os.waitpid(_start(listening, options.kit), 0)
        pause = min(_MAX_PAUSE_S, pause * 2 or 0.1) if time.monotonic() - begun < _SHORT_RUN_S else 0.0
        print(f"The server ended ({_exit_reason(status)}) and is started again.", file=sys.stderr, flush=True)
        time.sleep(pause)


def _start(listening: socket.socket, kit: str) -> int:
    command = words("server", listening.fileno(), kit)
    child = os.fork()
    if child == 0:
        try:
            os.execv(command[0], command)  # noqa: S606 (a program of ours, by its path)
        finally:
            os._exit(127)
    return child


def _exit_reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"with exit code {os.WEXITSTATUS(status)}"
