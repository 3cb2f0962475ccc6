"""Content codings: negotiation, and streaming gzip of request and response bodies."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from paddock.machine.threads import in_thread

_FEW_MEMBERS, _SMALL_MEMBER = 1000, 1024
"""A gzip member costs as much as decoding some kilobytes. After the first few, the number of members is limited by the
bytes on either side divided by this size; programs that compress in blocks write larger members."""
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 256 * 1024
_LEVEL = 1
"""Fast rather than small."""
_IN_THREAD = 64 * 1024


class BadCoding(Exception):
    """The body is not valid gzip, or is truncated."""


class NotAcceptable(Exception):
    """The client accepts neither gzip nor identity."""


def chosen(accept: str | None) -> str:
    """``gzip`` or ``identity``.

    Clients commonly list gzip among others, but compressing costs more than sending, so they get the file uncompressed.
    gzip is used only if it is the only accepted coding.
    """
    weights = _weights(accept or "")
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    identity = weights.get("identity", 0.0 if weights.get("*") == 0 else 1.0)
    if gzip and (not identity or set(weights) == {"gzip"}):
        return "gzip"
    if not identity:
        raise NotAcceptable
    return "identity"


async def unzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decompress a chunk into pieces of limited size, in time linear in input and output."""
    decoder = zlib.decompressobj(_GZIP)
    begun = False
    members, size = 0, 0
    async for chunk in chunks:
        size += len(chunk)
        rest = chunk
        while True:
            begun = begun or bool(rest)
            try:
                piece = decoder.decompress(rest, _PIECE)
            except zlib.error:
                raise BadCoding("the body is not valid gzip") from None
            rest = decoder.unconsumed_tail
            if decoder.eof:  # several members may follow each other
                rest = decoder.unused_data
                decoder = zlib.decompressobj(_GZIP)
                begun = False
                members += 1
            size += len(piece)
            if members > _FEW_MEMBERS + size // _SMALL_MEMBER:
                raise BadCoding("the gzip body has very many very small members: compress the file as a whole")
            if piece:
                yield piece
            if not rest and len(piece) < _PIECE:
                break
    if begun:
        raise BadCoding("the gzip body is not whole")


async def zipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    async for chunk in chunks:
        piece = await in_thread(encoder.compress, chunk) if len(chunk) > _IN_THREAD else encoder.compress(chunk)
        if piece:
            yield piece
    yield encoder.flush()


def _weights(accept: str) -> dict[str, float]:
    found = {}
    for item in accept.split(","):
        name, _, parameters = item.partition(";")
        if name.strip():
            found[name.strip().lower()] = _weight(parameters)
    return found


def _weight(parameters: str) -> float:
    name, _, value = parameters.partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 1.0
