"""The server's connection to the fork server: starts kernels, and reports their end.

The fork server is started for the first kernel, and again after it has ended for any reason.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
from typing import Any

from .commandline import words
from .kernels import START_SECONDS, CannotStart, StartInterrupted


class KernelProcess:
    """A kernel's process. ``ended`` resolves to how it ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.orphaned = False
        """Whether it ended because the fork server did."""


class ForkServerClient:
    def __init__(self, kit: str) -> None:
        self._kit = kit
        self._fork_server: ForkServerProcess | None = None
        self._starting = asyncio.Lock()

    async def spawn(self, connection_file: str, cwd: str) -> KernelProcess:
        try:
            return await (await self.ready()).spawn(connection_file, cwd)
        except StartInterrupted:
            return await (await self.ready()).spawn(connection_file, cwd)

    async def ready(self) -> ForkServerProcess:
        async with self._starting:
            if self._fork_server is None or self._fork_server.gone:
                self._fork_server = await ForkServerProcess.start(self._kit)
            return self._fork_server


class ForkServerProcess:
    """One process of the fork server, from start to end."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.gone = False
        self._process = process
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._orders: dict[int, asyncio.Future[KernelProcess]] = {}
        self._children: dict[int, KernelProcess] = {}
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def start(cls, kit: str) -> ForkServerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            command = words("fork_server", theirs.fileno(), kit)
            process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            said = json.loads(await asyncio.wait_for(reader.readline(), START_SECONDS) or b"{}")
        except asyncio.TimeoutError:
            said = {"failed": "they did not start in time"}
        if "ready" not in said:
            writer.close()
            if process.returncode is None:
                process.kill()
            raise CannotStart(f"Python's kernels cannot be used here: {said.get('failed', 'their parent ended')}")
        return cls(process, reader, writer)

    async def spawn(self, connection_file: str, cwd: str) -> KernelProcess:
        number = next(self._numbers)
        born = self._orders[number] = asyncio.get_running_loop().create_future()
        order = {"order": number, "connection_file": connection_file, "cwd": cwd}
        self._writer.write(json.dumps(order).encode() + b"\n")
        return await asyncio.wait_for(born, START_SECONDS)

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._handle(json.loads(line))
        except ConnectionError:
            pass  # it was killed while writing a message
        finally:
            self._end_all()
        await self._process.wait()

    def _handle(self, said: dict[str, Any]) -> None:
        if "ended" in said:
            child = self._children.pop(said["ended"], None)
            if child is not None:
                child.ended.set_result(_exit_reason(said["status"]))
            return
        child = self._children[said["pid"]] = KernelProcess(said["pid"])
        born = self._orders.pop(said["order"])
        if not born.done():
            born.set_result(child)

    def _end_all(self) -> None:
        """All kernels have ended with the fork server."""
        self.gone = True
        self._writer.close()
        for born in self._orders.values():
            if not born.done():
                born.set_exception(StartInterrupted("The parent of Python's kernels ended"))
        for child in self._children.values():
            child.orphaned = True
            child.ended.set_result("the parent of all Python kernels ended")


def _exit_reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"its kernel was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"its kernel ended with exit code {os.WEXITSTATUS(status)}"
