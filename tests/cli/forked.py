"""The program in a process of its own, forked from one that has imported it already.

A command is what it is for a user, with arguments, environment, directory, descriptors and exit code of its own. Only
what Python does before ``main``, most of what a short command costs, is done once for all of them.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_PRELOADED = ("paddock.cli", "paddock.client", "paddock.accounts", "paddock.store")
_MAX_REQUEST_BYTES = 1 << 17


class Forks:
    """The process that commands are forked from. Starts with the first, and ends with the process that asks."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def run(
        self, words: Sequence[str], *, input: bytes, env: Mapping[str, str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Does and answers what ``subprocess.run`` would."""
        (stdin, given), (out, stdout), (err, stderr), (told, status) = (os.pipe() for _ in range(4))
        request = json.dumps([list(words), dict(env), str(cwd)]).encode()
        socket.send_fds(self._connected(), [request], [stdin, stdout, stderr, status])
        for theirs in (stdin, stdout, stderr, status):
            os.close(theirs)
        with os.fdopen(told, "rb") as said, ThreadPoolExecutor(4) as threads:
            pid = int(said.readline())
            threads.submit(_write, given, input)
            output, errors, ended = (threads.submit(_read, end) for end in (out, err, os.dup(told)))
            try:
                code = int(ended.result(timeout))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout, output.result(), errors.result()) from None
            return subprocess.CompletedProcess(list(words), code, output.result(), errors.result())

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = (sys.executable, "-m", "tests.cli.forked", str(theirs.fileno()))
                subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[2])
        return self._socket


def _write(end: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(end, "wb") as file:
        file.write(data)


def _read(end: int) -> bytes:
    with os.fdopen(end, "rb") as file:
        return file.read()


# In the process that commands are forked from


def serve(requests: socket.socket) -> None:
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for a command is waited for by nobody
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            words, env, cwd = json.loads(request)
            _wait_for_command(words, env, cwd, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _preload() -> None:
    for name in _PRELOADED:
        for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    importlib.import_module("alembic.command")


def _wait_for_command(words: list[str], env: dict[str, str], cwd: str, descriptors: list[int]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(status)
        os._exit(_command(words, env, cwd, streams))
    for stream in streams:
        os.close(stream)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, b"%d" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _command(words: list[str], env: dict[str, str], cwd: str, streams: list[int]) -> int:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["paddock", *words]
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    code = 1
    try:
        from paddock.cli.app import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    return code


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
