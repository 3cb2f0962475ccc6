"""Bytes on their way into a file: as chunks, and where their source can, by the kernel alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class ByteSource(Protocol):
    """An iterator of chunks that can also write all of them into an open file without showing them to anybody."""

    async def pour(self, file: int) -> int | None:
        """How many bytes that were; None where they must be taken as chunks. Raises what the file system says."""


class CountedSource(AsyncIterator[bytes]):
    """The same bytes, by either way, and how many there were."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.count = 0
        self._chunks = chunks

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self.count += len(chunk)
        return chunk

    async def pour(self, file: int) -> int | None:
        poured = await self._chunks.pour(file) if isinstance(self._chunks, ByteSource) else None
        self.count += poured or 0
        return poured
