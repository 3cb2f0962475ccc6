"""Content codings: which one a client takes, gzip out of a body as it comes, and into an answer as it goes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from paddock.machine.threads import in_thread

_FEW_MEMBERS, _SMALL_MEMBER = 1000, 1024
"""A member costs as much as decoding some kilobytes. Beyond a few, as many are taken as there are bytes on either side
for members of this size; programs that compress in blocks write larger ones."""
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 256 * 1024
_LEVEL = 1
"""Files are sent as fast as they are read, not as small as they can be."""
_IN_THREAD = 64 * 1024


class BadCoding(Exception):
    """The body is not gzip, or not whole."""


class NotAcceptable(Exception):
    """The client takes neither gzip nor the file as it is."""


def chosen(accept: str | None) -> str:
    """``gzip`` or ``identity``.

    Clients say by habit that they take gzip among others; compressing costs more than sending, so they get the file as
    it is. Who names gzip alone wants it.
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
    """However much comes out of one chunk, it comes out in pieces; however little, it takes no longer."""
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
            if decoder.eof:  # several may stand one behind the other
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
