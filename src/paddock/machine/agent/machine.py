"""The Machine of a sandbox whose PID 1 is the agent. The provider starts the machine; this class operates inside it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from paddock.clock import Clock, SystemClock
from paddock.machine.agent import failures
from paddock.machine.agent.connection import REPLY_SECONDS, AgentConnection, Connect
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.files import AgentFiles
from paddock.machine.agent.pending import PendingCall
from paddock.machine.agent.ports import AgentPorts, ListenerKind, SocketConnection
from paddock.machine.agent.processes import AgentProcesses
from paddock.machine.agent.replies import AgentUsage, read_usage
from paddock.machine.agent.transfer import Transfer
from paddock.machine.agent.wire import Reader, ReplyKind, RequestKind, Writer
from paddock.machine.base import (
    DEFAULT_USER,
    Connection,
    FileInfo,
    Machine,
    MachineStats,
    OutputChunk,
    OutputLimits,
    ProcessInfo,
    ProcessSpec,
    Stream,
    TerminalSize,
    Watch,
)

if TYPE_CHECKING:
    from paddock.machine.agent.bridge import AgentBridge
    from paddock.machine.agent.inline_transfer import InlineTransfer
    from paddock.machine.agent.remote_ports import RemotePorts


class AgentMachine(Machine):
    """Connects at first use and keeps one link. Close it when detaching; the sandbox keeps running."""

    def __init__(
        self,
        sandbox_id: str,
        connect: Connect,
        environment: Callable[[], Mapping[str, str]],
        stats: Callable[[], Awaitable[MachineStats]] | None = None,
        limits: OutputLimits | None = None,
        *,
        clock: Clock | None = None,
        reply_seconds: float = REPLY_SECONDS,
        ready: Callable[[], None] = lambda: None,
        bridge: AgentBridge | None = None,
    ) -> None:
        """``ready`` raises if the machine cannot answer now, because it is frozen or gone.

        ``bridge``: the agent is behind a network, which cannot pass descriptors; ports are then reached through the
        bridge.
        """
        self.sandbox_id = sandbox_id
        self._connection = AgentConnection(sandbox_id, connect, reply_seconds, ready, descriptors=bridge is None)
        self._processes = AgentProcesses(self._connection, environment, limits or OutputLimits())
        self._files = AgentFiles(self._connection)
        self._transfer: Transfer | InlineTransfer
        self._ports: AgentPorts | RemotePorts
        if bridge is None:
            self._transfer, self._ports = Transfer(self._connection, self._files), AgentPorts(self._connection)
        else:
            # Imported only for remote sandboxes.
            from paddock.machine.agent.inline_transfer import InlineTransfer
            from paddock.machine.agent.remote_ports import RemotePorts

            self._transfer, self._ports = (
                InlineTransfer(self._connection, self._files),
                RemotePorts(self._connection, bridge),
            )
        self._measure = stats
        self._clock = clock or SystemClock()

    async def aclose(self) -> None:
        self._processes.close()
        await self._ports.close()
        await self._connection.close()

    # Processes

    async def spawn(self, spec: ProcessSpec) -> ProcessInfo:
        return await self._processes.spawn(spec)

    def begin(self, spec: ProcessSpec, *, linger: bool = True) -> AsyncGenerator[ProcessInfo | OutputChunk, None]:
        return self._processes.begin(spec, linger)

    async def run(
        self, spec: ProcessSpec, timeout: float | None = None, limit: int = 1 << 20
    ) -> tuple[ProcessInfo, OutputChunk, OutputChunk]:
        info, kept = await self._processes.run(spec, timeout)
        stdout = kept(Stream.STDOUT, limit) or await self._gather(info, Stream.STDOUT, limit)
        return info, stdout, kept(Stream.STDERR, limit) or await self._gather(info, Stream.STDERR, limit)

    async def processes(self) -> list[ProcessInfo]:
        return await self._processes.processes()

    async def process(self, process_id: str) -> ProcessInfo:
        return await self._processes.process(process_id)

    async def note(self, process_id: str) -> bytes:
        return await self._processes.note(process_id)

    async def wait(self, process_id: str, timeout: float | None = None) -> ProcessInfo:
        return await self._processes.wait(process_id, timeout)

    async def read_output(self, process_id: str, stream: Stream, offset: int = 0, limit: int = 1 << 20) -> OutputChunk:
        return await self._processes.read_output(process_id, stream, offset, limit)

    def follow(
        self, process_id: str, stdout_offset: int = 0, stderr_offset: int = 0, *, linger: bool = False
    ) -> AsyncIterator[OutputChunk]:
        return self._processes.follow(process_id, stdout_offset, stderr_offset, linger)

    async def write_stdin(self, process_id: str, data: bytes) -> None:
        await self._processes.write_stdin(process_id, data)

    async def close_stdin(self, process_id: str) -> None:
        await self._processes.close_stdin(process_id)

    async def signal(self, process_id: str, signal: int, *, group: bool = True) -> None:
        await self._processes.signal(process_id, signal, group)

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        await self._processes.resize(process_id, size)

    async def stop_all(self) -> int:
        """Stop every process except the agent, where there is no freezer; returns how many."""
        return await self._count(RequestKind.STOP_ALL)

    async def continue_all(self) -> int:
        """Continue the processes that ``stop_all`` has stopped."""
        return await self._count(RequestKind.CONTINUE_ALL)

    async def kill_all(self) -> int:
        """Kill every process except the agent at once; returns how many. Unsupported by an agent without a PID
        namespace."""
        return await self._count(RequestKind.KILL_ALL)

    # Files

    async def stat(self, path: str, *, follow: bool = False, user: str = DEFAULT_USER) -> FileInfo:
        return await self._files.stat(path, follow, user)

    async def resolve(self, path: str, *, user: str = DEFAULT_USER) -> FileInfo:
        return await self._files.resolve(path, user)

    async def attributes(self, paths: Sequence[str], *, user: str = DEFAULT_USER) -> list[dict[str, str]]:
        return await self._files.attributes(paths, user)

    async def list_directory(self, path: str, depth: int = 1, *, user: str = DEFAULT_USER) -> list[FileInfo]:
        return await self._files.list_directory(path, depth, user)

    def read_file(
        self, path: str, offset: int = 0, limit: int | None = None, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[bytes]:
        return self._transfer.read(path, offset, limit, user)

    async def write_file(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        atomic: bool = True,
        user: str = DEFAULT_USER,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        return await self._transfer.write(path, chunks, mode, atomic, user, owner, attributes)

    async def make_directory(self, path: str, user: str = DEFAULT_USER, *, owner: str | None = None) -> bool:
        return await self._files.make_directory(path, user, owner)

    async def move(self, source: str, destination: str, *, user: str = DEFAULT_USER) -> FileInfo:
        return await self._files.move(source, destination, user)

    async def remove(self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER) -> None:
        await self._files.remove(path, recursive, user)

    async def chmod(self, path: str, mode: int, user: str = DEFAULT_USER) -> FileInfo:
        return await self._files.chmod(path, mode, user)

    def watch(
        self, path: str, recursive: bool = False, *, user: str = DEFAULT_USER
    ) -> AbstractAsyncContextManager[Watch]:
        return self._files.watch(path, recursive, user)

    # Ports and usage

    async def dial(self, port: int) -> Connection:
        return SocketConnection(await self._ports.dial(port))

    async def dial_socket(self, port: int) -> socket.socket:
        """A validated, non-blocking socket connected to ``port`` inside. The caller closes it.

        The agent may hold the same open file and make it blocking again: on an event loop always pass ``MSG_DONTWAIT``.
        """
        return await self._ports.dial(port)

    async def listen_socket(self, port: int, kind: ListenerKind = ListenerKind.STREAM) -> socket.socket:
        """A validated, non-blocking socket that listens on ``port`` inside; all servers get the same one."""
        return await self._ports.listen(port, kind)

    async def usage(self) -> AgentUsage:
        """Usage as counted by the agent itself, for providers that know the rest."""
        try:
            return await self._connection.call(
                RequestKind.STATS, Writer(), lambda: PendingCall(ReplyKind.STATS_OK, read_usage), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_request(refusal) from None

    async def stats(self) -> MachineStats:
        """The provider's own numbers if it has any; else the agent's, with the limits of the host."""
        if self._measure is not None:
            return await self._measure()
        usage = await self.usage()
        return MachineStats(
            at=self._clock.now(),
            cpu_count=float(os.cpu_count() or 1),
            cpu_seconds=usage.cpu_seconds,
            memory_used=usage.memory,
            memory_total=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            disk_used=usage.disk_used,
            disk_total=usage.disk_total,
            process_count=usage.processes,
        )

    async def _count(self, kind: RequestKind) -> int:
        try:
            return await self._connection.call(
                kind, Writer(), lambda: PendingCall(ReplyKind.COUNT, Reader.u32), again=True
            )
        except AgentRefusal as refusal:
            raise failures.of_request(refusal) from None
