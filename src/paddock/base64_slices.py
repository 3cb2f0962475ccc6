"""Base64 of what may be many megabytes, slice by slice, so that others get their turn in between."""

from __future__ import annotations

import asyncio
import base64

_SLICE_CHARACTERS = 1 << 20
"""Whole groups of four."""


async def decode(text: str) -> bytes:
    """Raises ValueError for what is no base64."""
    if len(text) <= _SLICE_CHARACTERS:
        return base64.b64decode(text, validate=True)
    whole = bytearray()
    for at in range(0, len(text), _SLICE_CHARACTERS):
        if at and "=" in text[at - 2 : at]:
            raise ValueError("padding within the text")
        whole += base64.b64decode(text[at : at + _SLICE_CHARACTERS], validate=True)
        await asyncio.sleep(0)
    return bytes(whole)
