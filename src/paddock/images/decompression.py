"""Reads a layer whichever way it is compressed, and counts and hashes what comes out."""

from __future__ import annotations

import hashlib
import zlib
from typing import BinaryIO, Protocol

import zstandard

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPABLE_ZSTD = tuple(bytes((0x50 + number, 0x2A, 0x4D, 0x18)) for number in range(16))
_CHUNK = 256 << 10
_MAX_WINDOW = 128 << 20
"""Of zstd: its decoder would reserve as much memory as a stream says, up to 2 GB."""


class TooLarge(Exception):
    pass


class Damaged(Exception):
    pass


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class LayerReader:
    """The uncompressed tar, for reading from the beginning to the end. Raises TooLarge beyond ``max_bytes``."""

    def __init__(self, blob: BinaryIO, max_bytes: int) -> None:
        self._source = _opened(blob)
        self._left = max_bytes
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        chunk = self._source.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise TooLarge
        self._hash.update(chunk)
        return chunk

    def finish(self) -> str:
        """Read what follows the end of the archive, and answer the digest of all."""
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._hash.hexdigest()}"


class _Gzip:
    """Of one member or several. Faster than the module ``gzip``, whose checksums zlib computes itself here."""

    def __init__(self, blob: _Source) -> None:
        self._blob = blob
        self._member = zlib.decompressobj(wbits=31)
        self._pending = b""
        self._begun = False

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                if not self._next_member():
                    return b""
            elif not self._pending:
                self._pending = self._blob.read(_CHUNK)
                if not self._pending:
                    raise Damaged("it ends in the middle of a gzip stream")
            try:
                chunk = self._member.decompress(self._pending, size)
            except zlib.error as error:
                raise Damaged(f"gzip: {error}") from None
            self._pending = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if chunk:
                return chunk

    def _next_member(self) -> bool:
        """Zeros may follow the last one."""
        self._pending = (self._pending or self._blob.read(_CHUNK)).lstrip(b"\0")
        while not self._pending:
            if not (more := self._blob.read(_CHUNK)):
                return False
            self._pending = more.lstrip(b"\0")
        self._member = zlib.decompressobj(wbits=31)
        return True


class _Zstd:
    def __init__(self, blob: BinaryIO) -> None:
        window = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._stream = window.stream_reader(blob, read_size=_CHUNK, read_across_frames=True, closefd=False)

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except zstandard.ZstdError as error:
            raise Damaged(f"zstd: {error}") from None


def _opened(blob: BinaryIO) -> _Source:
    head = blob.read(4)
    blob.seek(0)
    if head.startswith(_GZIP):
        return _Gzip(blob)
    if head == _ZSTD or head in _SKIPPABLE_ZSTD:
        return _Zstd(blob)
    return blob
