"""Byte sources for files: chunks, or a direct copy by the kernel if the source supports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class ByteSource(Protocol):
    """An iterator of chunks that can also write all of them to an open file without passing them through Python."""

    async def copy_to(self, file: int) -> int | None:
        """Write everything to ``file``; returns the number of bytes, or None if the chunks must be iterated. Raises
        OSError."""


class CountedSource(AsyncIterator[bytes]):
    """Wraps a source and counts its bytes, iterated or copied."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.count = 0
        self._chunks = chunks

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self.count += len(chunk)
        return chunk

    async def copy_to(self, file: int) -> int | None:
        copied = await self._chunks.copy_to(file) if isinstance(self._chunks, ByteSource) else None
        self.count += copied or 0
        return copied
