"""How a container's agent starts: it asks at a socket that only its container can see, and gets its descriptors.

From then on it is reached like any other: by the listener that it was given, whose path is the host's alone. The socket
is there for one start and one caller. Nothing but the agent runs in the container before that, so no other can be it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from pathlib import Path

from paddock import errors
from paddock.providers.common import launch
from paddock.providers.common.record import SOCKET
from paddock.providers.common.seccomp.compiler import program
from paddock.providers.docker.container import START_SOCKET
from paddock.providers.docker.engine import DockerEngine

_START_TIMEOUT_S = 45.0


class AgentStarter:
    """Holds the system call filters, which every agent gets."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._filters = os.memfd_create("filters", os.MFD_CLOEXEC)
        os.write(self._filters, program(platform.machine()))

    def close(self) -> None:
        os.close(self._filters)

    async def start(self, name: str, start_directory: Path, folder: Path) -> None:
        """Start the container; its agent listens at the socket in ``folder`` when this returns."""
        with launch.listen(folder, SOCKET) as listener, launch.listen(start_directory, START_SOCKET) as asked:
            # With mapped ids the container's root has no rights here.
            (start_directory / START_SOCKET).chmod(0o666)
            asked.setblocking(False)
            try:
                await self._engine.start(name)
                await self._answer(name, asked, listener)
            finally:
                (start_directory / START_SOCKET).unlink(missing_ok=True)

    async def _answer(self, name: str, asked: socket.socket, listener: socket.socket) -> None:
        caller = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(asked))
        end = asyncio.ensure_future(self._engine.ended(name))
        try:
            await asyncio.wait([caller, end], timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if caller.done():
                self._give(caller.result()[0], listener)
            elif end.done():
                raise errors.ProviderRefused(
                    f"The container ended before its agent asked for anything (exit code {end.result()}). Does the "
                    "engine run on this machine, with a runtime that shares unix sockets with it? Else set "
                    "PADDOCK_DOCKER_WAY=far."
                )
            else:
                raise errors.ProviderTimeout(
                    f"The container's agent did not ask for anything within {_START_TIMEOUT_S:g} s."
                )
        finally:
            for each in (caller, end):
                each.cancel()
            await asyncio.gather(caller, end, return_exceptions=True)

    def _give(self, caller: socket.socket, listener: socket.socket) -> None:
        # Opened anew for each: descriptors of one open file share their position.
        filters = os.open(f"/proc/self/fd/{self._filters}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with caller:
                socket.send_fds(caller, [b"b"], [listener.fileno(), filters])
        except OSError as error:
            raise errors.ProviderUnavailable(f"The container's agent went away: {error}") from error
        finally:
            os.close(filters)
