"""A timeout for every call to a provider. A call that times out has an unknown outcome, not a failed one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from paddock.errors import ProviderTimeout

T = TypeVar("T")


async def with_timeout(seconds: float, awaitable: Awaitable[T], step: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise ProviderTimeout(
            f"The provider did not finish {step!r} within {seconds:g} s; Paddock goes on trying in the background.",
            retry_after=5,
        ) from None
