"""An attachment to one process, for terminals, WebSockets and followers of its output."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator

from paddock import errors
from paddock.lifecycle.controller import ActiveSandbox
from paddock.machine.base import ProcessInfo, TerminalSize
from paddock.runtime.output import Output


class ProcessAttachment:
    """Valid while the sandbox's ``use`` context is open. Counts the bytes that pass through; ``settle`` records
    them."""

    def __init__(self, use: ActiveSandbox, info: ProcessInfo) -> None:
        self.info = info
        self._use = use
        self._bytes_in = 0
        self._bytes_out = 0

    async def follow(self, stdout_offset: int = 0, stderr_offset: int = 0) -> Output:
        """Output from these offsets on as it is written, then the process's final state."""
        chunks = self._use.machine.follow(self.info.process_id, stdout_offset, stderr_offset)
        try:
            async for chunk in chunks:
                self._bytes_out += len(chunk.data)
                yield chunk
            self.info = await self._use.machine.process(self.info.process_id)
            yield self.info
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def write_stdin(self, data: bytes, close: bool = False) -> None:
        if data:
            await self._use.machine.write_stdin(self.info.process_id, data)
            self._bytes_in += len(data)
        if close:
            await self._use.machine.close_stdin(self.info.process_id)

    async def signal(self, name: str) -> None:
        """Send a signal, by name with or without ``SIG``, to the whole process group."""
        full = name if name.startswith("SIG") else f"SIG{name}"
        try:
            number = signal.Signals[full]
        except KeyError:
            raise errors.Invalid(f"{name[:20]!r} is not a signal, for example SIGINT or SIGTERM.") from None
        await self._use.machine.signal(self.info.process_id, number)

    async def resize(self, rows: int, cols: int) -> None:
        await self._use.machine.resize(self.info.process_id, TerminalSize(rows, cols))

    async def settle(self) -> None:
        if self._bytes_in or self._bytes_out:
            await self._use.record(bytes_in=self._bytes_in, bytes_out=self._bytes_out)
            self._bytes_in = self._bytes_out = 0
