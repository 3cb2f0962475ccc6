"""Keeping machines at a vendor alive for as long as a server is, and no longer.

Every machine has a lease: unless it is renewed, the vendor stops it by itself. So our own deadlines alone decide while
a server runs, and servers that are gone for good leave nothing behind that costs money for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from paddock import errors
from paddock.providers.base import MachineState
from paddock.providers.vendor.base import Vendor, VendorMachine

log = structlog.get_logger(__name__)

_PART = 3
"""Renewed three times as often as it must be: a vendor that cannot be reached for a while stops nothing."""
_LONGEST_TRY = 30.0
_AT_ONCE = 8


class Lease:
    def __init__(
        self, vendor: Vendor, seconds: int, machines: Callable[[], Awaitable[Sequence[VendorMachine]]]
    ) -> None:
        self._vendor = vendor
        self._seconds = seconds
        self._machines = machines
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def renew(self) -> bool:
        """All that run. False when some could not be."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def one(machine: VendorMachine) -> bool:
            async with turn:
                try:
                    await self._vendor.renew(machine.reference, self._seconds)
                except errors.SandboxNotFound:
                    return True  # stopped or deleted in this moment
                except errors.PaddockError as error:
                    log.warning("lease not renewed", reference=machine.reference, problem=error.message)
                    return False
                return True

        try:
            running = [one for one in await self._machines() if one.state is MachineState.RUNNING]
        except errors.PaddockError as error:
            log.warning("leases not renewed", provider=self._vendor.name, problem=error.message)
            return False
        return all(await asyncio.gather(*map(one, running)))

    async def _keep(self) -> None:
        """At once, because another server may have been gone for long; then in time, and sooner where one failed."""
        while True:
            usual = self._seconds / _PART
            pause = usual if await self.renew() else min(usual / 2, _LONGEST_TRY)
            await asyncio.sleep(pause)
