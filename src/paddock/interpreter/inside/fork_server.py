"""The fork server: has ipykernel imported, and forks a kernel from itself on request.

A forked kernel starts ten times faster and shares the memory of the imported modules. Requests come from the server as
JSON lines, and the end of each kernel is reported; the fork server ends with the server, and kernels end with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from argparse import Namespace
from typing import Any

from .parent_death import die_with

FAILURE = "failure.txt"
"""File beside the connection file: why a kernel could not start."""
ENV = "paddock_env"
"""Metadata key of an execute request: variables for this execution only."""
BEGUN = "paddock_begun"
"""Metadata key of an execute request: a file to create before the code runs."""
BEGUN_FILE = "begun"


def main(options: Namespace) -> None:
    die_with(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=options.socket)
    os.set_inheritable(orders.fileno(), False)
    try:
        from . import ipython  # noqa: F401 (the point of it: forked kernels have it already)
    except ImportError as problem:
        _send(orders, {"failed": f"{type(problem).__name__}: {problem}"})
        return
    # Excluded from garbage collection in the kernels, so that these pages stay shared.
    gc.collect()
    gc.freeze()
    _send(orders, {"ready": True})
    _ForkServer(orders).run()


class _ForkServer:
    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._rest = b""
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        while True:
            sources: list[Any] = [self._orders, self._woken]
            readable, _, _ = select.select(sources, [], [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._orders in readable:
                for order in self._read():
                    _send(self._orders, {"order": order["order"], "pid": self._fork(order)})

    def _read(self) -> list[dict[str, Any]]:
        data = self._orders.recv(65536)
        if not data:
            sys.exit(0)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            _send(self._orders, {"ended": pid, "status": status})

    def _fork(self, order: dict[str, Any]) -> int:
        fork_server = os.getpid()
        child = os.fork()
        if child:
            return child
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with(fork_server)
            os.setsid()
            self._orders.close()
            _become_kernel(order["connection_file"], order["cwd"])
        finally:
            os._exit(1)


def _become_kernel(connection_file: str, cwd: str) -> None:
    from . import ipython

    # Kernel output to the inherited descriptors is not needed.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    try:
        os.chdir(cwd)
        os.environ["PWD"] = cwd
        ipython.run(connection_file)
    except Exception:
        with open(os.path.join(os.path.dirname(connection_file), FAILURE), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc(limit=-3))
        raise
    os._exit(0)


def _send(orders: socket.socket, said: dict[str, Any]) -> None:
    orders.sendall(json.dumps(said).encode() + b"\n")
