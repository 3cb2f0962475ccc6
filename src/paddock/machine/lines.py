"""Lines of a stream that comes in pieces, put together at a cost that grows with its bytes and nothing else."""

from __future__ import annotations


class LineBuffer:
    """Holds what has no end yet. Adding to a line never copies what is held of it."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def __len__(self) -> int:
        """Bytes of the line that has not ended."""
        return len(self._rest)

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece, without their ends."""
        *ended, tail = piece.split(b"\n")
        if ended:
            self._rest += ended[0]
            ended[0] = bytes(self._rest)
            self._rest = bytearray(tail)
        else:
            self._rest += tail
        return ended
