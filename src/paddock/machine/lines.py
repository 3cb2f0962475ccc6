"""Splits a chunked byte stream into lines, in time linear in its length."""

from __future__ import annotations


class LineBuffer:
    """Buffers an incomplete line. Appending to it never copies what is buffered."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        """Length of the incomplete line in bytes."""
        return len(self._rest)

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines completed by this chunk, without line ends."""
        *ended, tail = piece.split(b"\n")
        if ended:
            self._rest += ended[0]
            ended[0] = bytes(self._rest)
            self._rest = bytearray(tail)
        else:
            self._rest += tail
        return ended
