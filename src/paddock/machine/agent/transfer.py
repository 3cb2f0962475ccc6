"""File contents through descriptors passed by the agent: large chunks, in threads, with constant memory."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Mapping

from paddock import errors
from paddock.machine.agent import failures
from paddock.machine.agent.connection import AgentConnection
from paddock.machine.agent.failures import AgentRefusal
from paddock.machine.agent.files import AgentFiles, entry_of
from paddock.machine.agent.link import AgentLink
from paddock.machine.agent.pending import DescriptorCall, HandedDescriptors, PendingCall
from paddock.machine.agent.wire import ProtocolError, Reader, ReplyKind, RequestKind, Writer, plain_path
from paddock.machine.base import ATTRIBUTES, FileInfo, FileType
from paddock.machine.byte_sources import ByteSource
from paddock.machine.threads import in_thread

READ, REPLACE, IN_PLACE = 0, 1, 2
MODE_AS_IT_IS = 0xFFFFFFFF
_WRITE_BYTES = 1 << 20
_INLINE_READ_BYTES = 256 * 1024
_MAX_GATHERED_CHUNKS = 512


class Transfer:
    def __init__(self, line: AgentConnection, files: AgentFiles) -> None:
        self._connection = line
        self._files = files

    async def read(self, path: str, offset: int, limit: int | None, user: str) -> AsyncIterator[bytes]:
        if offset < 0 or (limit is not None and limit < 0):
            raise errors.Invalid("offset and limit must not be negative")
        path = plain_path(path)
        opened = await self._open(path, READ, MODE_AS_IT_IS, user)
        fd = opened.descriptor
        try:
            release(opened.link, opened.value)
            size = os.fstat(fd).st_size
            left = limit
            while left is None or left > 0:
                data = await _read(fd, _WRITE_BYTES if left is None else min(_WRITE_BYTES, left), offset, size, path)
                if not data:
                    return
                offset += len(data)
                left = None if left is None else left - len(data)
                yield data
        finally:
            os.close(fd)

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        mode: int | None,
        atomic: bool,
        user: str,
        owner: str | None,
        attributes: Mapping[str, str] | None,
    ) -> FileInfo:
        path = plain_path(path)
        how = REPLACE if atomic else IN_PLACE
        opened = await self._open(path, how, MODE_AS_IT_IS if mode is None else mode, user, owner, attributes)
        fd, link, token = opened.descriptor, opened.link, opened.value
        try:
            try:
                await _pour(fd, chunks, path)
            finally:
                # Closed before the file is put in place: a program that is open for writing cannot be executed.
                os.close(fd)
            call = PendingCall(ReplyKind.ENTRY, entry_of(path))
            return await link.call(RequestKind.COMMIT, Writer().u32(token), call, self._connection.reply_seconds)
        except AgentRefusal as refusal:
            release(link, token)
            raise failures.of_path(refusal, path) from None
        except BaseException:
            release(link, token)
            raise

    async def _open(
        self,
        path: str,
        how: int,
        mode: int,
        user: str,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> HandedDescriptors[int]:
        request, payload = open_request(path, how, mode, user, owner, attributes)
        decode_entry = entry_of(path)

        access = os.O_RDONLY if how == READ else os.O_WRONLY

        def decode(body: Reader, fd: int) -> int:
            token = body.u32()
            decode_entry(body)
            _check(fd, access)
            return token

        try:
            return await self._connection.call(
                request, payload, lambda: DescriptorCall(ReplyKind.OPENED, decode, release), again=True
            )
        except AgentRefusal as refusal:
            await blame_the_kind(refusal, self._files, path, user)
            raise failures.of_path(refusal, path) from None


def open_request(
    path: str, how: int, mode: int, user: str, owner: str | None, attributes: Mapping[str, str] | None
) -> tuple[RequestKind, Writer]:
    payload = Writer().text(user)
    if owner is None and attributes is None:
        return RequestKind.OPEN, payload.text(path).u8(how).u32(mode)
    payload.text(owner or "").text(path).u8(how).u32(mode).text("" if attributes is None else ATTRIBUTES)
    payload.texts(part for name, value in (attributes or {}).items() for part in (ATTRIBUTES + name, value))
    return RequestKind.OPEN_FOR, payload


async def blame_the_kind(refusal: AgentRefusal, files: AgentFiles, path: str, user: str) -> None:
    """The agent reports EINVAL both for an unknown user and for a FIFO or device: raise PathConflict if it is the
    latter."""
    if refusal.number != errno.EINVAL:
        return
    try:
        found = await files.stat(path, True, user)
    except errors.PathNotFound:
        return
    if found.type is FileType.OTHER:
        raise errors.PathConflict(f"{path!r} is not a regular file.", details={"path": path[:1000]})


def release(link: AgentLink, token: int) -> None:
    link.tell(RequestKind.CLOSE, Writer().u32(token))


def _check(fd: int, access: int) -> None:
    """The agent's descriptor must be a regular file, opened for the requested access only."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ProtocolError("The sandbox's agent sent a descriptor that is not a file.")
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if flags & os.O_PATH or flags & os.O_ACCMODE not in (access, os.O_RDWR):
        raise ProtocolError("The sandbox's agent gave a file that is open for something else.")


async def _read(fd: int, size: int, offset: int, file_size: int, path: str) -> bytes:
    data = _read_now(fd, size, offset, file_size)
    if data is not None:
        return data
    try:
        return await in_thread(os.pread, fd, size, offset)
    except OSError as error:
        raise failures.of_path(error, path) from None


def _read_now(fd: int, size: int, offset: int, file_size: int) -> bytes | None:
    """Read a small file at once if it is in the page cache; None if the read would block."""
    if not 0 < file_size <= _INLINE_READ_BYTES:
        return None
    room = bytearray(min(size, max(file_size - offset, 0) + 1))
    try:
        got = os.preadv(fd, [room], offset, os.RWF_NOWAIT)
    except OSError:  # not in the page cache, or not supported by the file system: use a thread
        return None
    return bytes(memoryview(room)[:got])


async def _pour(fd: int, chunks: AsyncIterator[bytes], path: str) -> None:
    """Copied by the kernel if possible; else small chunks are gathered, so that not each one wakes a thread."""
    try:
        if isinstance(chunks, ByteSource) and await chunks.copy_to(fd) is not None:
            return
    except OSError as error:
        raise failures.of_path(error, path) from None
    gathered: list[bytes] = []
    size = 0
    async for chunk in chunks:
        if chunk:
            gathered.append(chunk)
            size += len(chunk)
        if size >= _WRITE_BYTES or len(gathered) >= _MAX_GATHERED_CHUNKS:
            await _write(fd, gathered, path)
            gathered, size = [], 0
    if gathered:
        await _write(fd, gathered, path)


async def _write(fd: int, chunks: list[bytes], path: str) -> None:
    try:
        await in_thread(_write_all, fd, chunks)
    except OSError as error:
        raise failures.of_path(error, path) from None


def _write_all(fd: int, chunks: list[bytes]) -> None:
    for chunk in [b"".join(chunks)] if len(chunks) > 1 else chunks:
        view = memoryview(chunk)
        while view:
            view = view[os.write(fd, view) :]
