"""Returns freed heap memory to the host.

glibc keeps free memory that lies between blocks in use: after a burst of streams a server would hold its peak for ever.
Without glibc this does nothing.

What an exception's traceback refers to is often a reference cycle, which only a full collection frees; a server that is
idle after a burst would never come to one by itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from pathlib import Path

from paddock.clock import Pace

_INTERVAL_SECONDS = 5.0
_WORTH_TRIMMING_BYTES = 16 << 20
_WORTH_COLLECTING_BYTES, _COLLECT_INTERVAL_S = 32 << 20, 20.0
"""A full collection is made while the process is larger than it was by this much, and no more often than this."""
_MAX_COLLECTED_OBJECTS = 250_000
"""A collection holds the interpreter, and so the event loop, for 0.07 s with 200,000 objects. With more, the server
waits for the one that Python makes by itself."""
_STATM = Path("/proc/self/statm")


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of ``malloc.h``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class HeapTrimmer:
    def __init__(self) -> None:
        self._lowest_free = 0
        self._lowest_resident = 0
        self._collected_at = 0.0
        library = ctypes.CDLL(None)
        self._supported = hasattr(library, "mallinfo2") and hasattr(library, "malloc_trim")
        if self._supported:
            library.mallinfo2.restype = _MallocInfo
            library.malloc_trim.argtypes = [ctypes.c_size_t]
        self._library = library

    async def run(self, pace: Pace) -> None:
        while self._supported and await pace.rest(_INTERVAL_SECONDS):
            await asyncio.to_thread(self.trim)

    def trim(self) -> None:
        """Trim if much was freed since the last time: the C library counts what it has returned as free, too."""
        self._collect()
        free = int(self._library.mallinfo2().fordblks)
        self._lowest_free = min(self._lowest_free, free)
        if free - self._lowest_free >= _WORTH_TRIMMING_BYTES:
            self._library.malloc_trim(0)
            self._lowest_free = free

    def _collect(self) -> None:
        resident = int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self._lowest_resident = min(self._lowest_resident or resident, resident)
        large = resident - self._lowest_resident >= _WORTH_COLLECTING_BYTES
        if large and time.monotonic() - self._collected_at >= _COLLECT_INTERVAL_S:
            self._collected_at = time.monotonic()
            if len(gc.get_objects()) <= _MAX_COLLECTED_OBJECTS:
                gc.collect()
