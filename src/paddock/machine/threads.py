"""Runs blocking calls on descriptors in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Args = ParamSpec("Args")
Result = TypeVar("Result")


async def in_thread(call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """If cancelled, waits for the thread first, so that no descriptor is closed, and its number reused, while in
    use."""
    return await to_end(asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs)))


async def to_end(work: asyncio.Future[Result]) -> Result:
    """The result. If cancelled, waits for the end of the work first."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                continue
        if not work.cancelled():
            work.exception()
        raise
