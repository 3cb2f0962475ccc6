"""Keeps a vendor's machines alive as long as a server runs, and no longer.

Every machine has a lease, after which the vendor stops it unless it is renewed. So Paddock's own deadlines decide while
a server runs, and an installation whose servers are gone leaves no machines that cost money.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from paddock import errors
from paddock.providers.base import MachineState
from paddock.providers.vendor.base import Vendor, VendorMachine

log = structlog.get_logger(__name__)

_RENEWALS_PER_LEASE = 3
"""Renewed three times as often as necessary: a vendor that is unreachable for a while stops nothing."""
_MAX_RETRY_S = 30.0
_MAX_CONCURRENT_RENEWALS = 8


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
        """Renew the leases of all running machines. False if some could not be renewed."""
        turn = asyncio.Semaphore(_MAX_CONCURRENT_RENEWALS)

        async def one(machine: VendorMachine) -> bool:
            async with turn:
                try:
                    await self._vendor.renew(machine.reference, self._seconds)
                except errors.SandboxNotFound:
                    return True  # stopped or deleted meanwhile
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
        """Renew at once, because other servers may have been gone for long; then at intervals, sooner after a
        failure."""
        while True:
            usual = self._seconds / _RENEWALS_PER_LEASE
            pause = usual if await self.renew() else min(usual / 2, _MAX_RETRY_S)
            await asyncio.sleep(pause)
