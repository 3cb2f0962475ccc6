"""What the garbage collector need not walk: what a server has loaded and will keep for as long as it lives.

A full collection holds up the event loop for as long as it takes to walk every object that is not exempt.
"""

from __future__ import annotations

import gc


def begin() -> None:
    """From here on. A start makes next to no garbage, so until then it is left off (``paddock up``)."""
    gc.freeze()
    gc.enable()


def exempt_late_loaded() -> None:
    """After something large was loaded. Where ``begin`` was not called this process is not a server's alone, and what
    is in it is not ours to decide about."""
    if gc.get_freeze_count():
        gc.freeze()
