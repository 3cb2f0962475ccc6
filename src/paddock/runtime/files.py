"""Files of a sandbox: streamed in both directions, limited in size only where a response is held in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from paddock import errors
from paddock.accounts.accounts import Principal
from paddock.accounts.byte_budget import Reservation
from paddock.lifecycle.controller import ActiveSandbox, Controller
from paddock.machine.base import DEFAULT_USER, FileEvent, FileInfo, FileType
from paddock.machine.byte_sources import CountedSource
from paddock.settings import Settings


class SandboxFiles:
    def __init__(self, controller: Controller, settings: Settings) -> None:
        self._controller = controller
        self._limit = settings.max_file_body

    async def stat(
        self, who: Principal, sandbox_id: str, path: str, *, follow: bool = False, user: str = DEFAULT_USER
    ) -> FileInfo:
        async with self._controller.use(who, sandbox_id) as use:
            return await use.machine.stat(path, follow=follow, user=user)

    async def list_directory(
        self, who: Principal, sandbox_id: str, path: str, depth: int = 1, *, user: str = DEFAULT_USER
    ) -> list[FileInfo]:
        async with self._controller.use(who, sandbox_id) as use:
            return await use.machine.list_directory(path, depth, user=user)

    async def read(
        self,
        who: Principal,
        sandbox_id: str,
        path: str,
        offset: int = 0,
        limit: int | None = None,
        *,
        user: str = DEFAULT_USER,
    ) -> AsyncGenerator[bytes, None]:
        """Stream the file; the sandbox stays awake until the last byte. Errors are raised before the first."""
        async with (
            self._controller.use(who, sandbox_id) as use,
            aclosing(read_recorded(use, path, offset, limit, user=user)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def read_all(
        self, who: Principal, sandbox_id: str, path: str, holding: Reservation, *, user: str = DEFAULT_USER
    ) -> bytearray:
        """The whole file. Refused if it is larger than ``max_file_body``, or than the memory budget allows now."""
        limit = self._limit
        async with self._controller.use(who, sandbox_id) as use:
            info = await use.machine.stat(path, follow=True, user=user)
            if info.type is FileType.FILE:
                if info.size > limit:
                    raise _too_large(path, info.size, limit)
                holding.reserve(info.size)
            data = bytearray()
            # Reading one byte more than allowed detects files that have grown or report no size, as under /proc.
            async for chunk in use.machine.read_file(path, 0, limit + 1, user=user):
                holding.reserve(len(data) + len(chunk))
                data += chunk
                if len(data) > limit:
                    raise _too_large(path, len(data), limit)
            await use.record(bytes_out=len(data))
            return data

    async def write(
        self,
        who: Principal,
        sandbox_id: str,
        path: str,
        chunks: AsyncIterator[bytes],
        mode: int | None = None,
        *,
        user: str = DEFAULT_USER,
    ) -> FileInfo:
        """Create or replace a file, with missing parents. Readers see the old file until the last chunk has been
        written."""
        counted = CountedSource(chunks)
        async with self._controller.use(who, sandbox_id) as use:
            info = await use.machine.write_file(path, counted, mode=mode, user=user)
            await use.record(bytes_in=counted.count, event=("file.written", {"path": path, "size": counted.count}))
            return info

    async def write_bytes(
        self, who: Principal, sandbox_id: str, path: str, data: bytes, *, user: str = DEFAULT_USER
    ) -> FileInfo:
        async def whole() -> AsyncIterator[bytes]:
            yield data

        return await self.write(who, sandbox_id, path, whole(), user=user)

    async def make_directory(self, who: Principal, sandbox_id: str, path: str, *, user: str = DEFAULT_USER) -> FileInfo:
        """Create a directory with missing parents; succeeds if it exists."""
        async with self._controller.use(who, sandbox_id) as use:
            await use.machine.make_directory(path, user=user)
            return await use.machine.stat(path, user=user)

    async def move(
        self, who: Principal, sandbox_id: str, source: str, destination: str, *, user: str = DEFAULT_USER
    ) -> FileInfo:
        async with self._controller.use(who, sandbox_id) as use:
            info = await use.machine.move(source, destination, user=user)
            await use.record(event=("file.moved", {"source": source, "destination": destination}))
            return info

    async def remove(
        self, who: Principal, sandbox_id: str, path: str, recursive: bool = False, *, user: str = DEFAULT_USER
    ) -> None:
        async with self._controller.use(who, sandbox_id) as use:
            await use.machine.remove(path, recursive, user=user)
            await use.record(event=("file.removed", {"path": path}))

    async def watch(
        self, who: Principal, sandbox_id: str, path: str, recursive: bool = False, *, user: str = DEFAULT_USER
    ) -> AsyncGenerator[FileEvent | None, None]:
        """Changes below a directory. The first item is None: from then on no change is missed."""
        async with (
            self._controller.use(who, sandbox_id) as use,
            use.machine.watch(path, recursive, user=user) as changes,
        ):
            yield None
            async for change in changes:
                yield change


def _too_large(path: str, size: int, limit: int) -> errors.PayloadTooLarge:
    return errors.PayloadTooLarge(
        f"{path} is larger than the {limit} bytes that one JSON answer may carry; "
        "stream it with GET /sandboxes/{sandbox_id}/files.",
        details={"size": size, "limit": limit},
    )


async def read_recorded(
    use: ActiveSandbox, path: str, offset: int = 0, limit: int | None = None, *, user: str = DEFAULT_USER
) -> AsyncGenerator[bytes, None]:
    """Stream a file, and record the bytes sent."""
    sent, chunks = 0, use.machine.read_file(path, offset, limit, user=user)
    try:
        async for chunk in chunks:
            sent += len(chunk)
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
        await use.record(bytes_out=sent)
