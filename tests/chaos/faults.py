"""Faults among the kills: a server that stands still for a while, and agents of sandboxes that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

from paddock import errors
from paddock.providers.ground.record import Record
from tests.chaos.slot import Slot


async def inject(slots: list[Slot], home: Path, rng: random.Random, stop: asyncio.Event) -> Counter[str]:
    """One after the other, until told to stop; which ones there were."""
    done: Counter[str] = Counter()
    while not stop.is_set():
        fault = rng.choice([_stand_still, _kill_agent])
        if await fault(slots, home, rng):
            done[fault.__name__.strip("_").replace("_", " ")] += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), rng.uniform(0.1, 0.6))
    return done


async def _stand_still(slots: list[Slot], _: Path, rng: random.Random) -> bool:
    pid = rng.choice(slots).pid
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):  # it dies by itself
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        os.kill(pid, signal.SIGCONT)
    return True


async def _kill_agent(_: list[Slot], home: Path, rng: random.Random) -> bool:
    """Of a local sandbox, as the host's memory killer or an operator would."""
    folders = list((home / "local" / "sandboxes").glob("*"))
    if not folders:
        return False
    with contextlib.suppress(errors.PaddockError, OSError):  # it goes in this moment
        record = Record.load(rng.choice(folders))
        if record is not None and record.running is not None and (pidfd := record.running.send_kill()) is not None:
            os.close(pidfd)
            return True
    return False
