"""The whole escape suite from beginning to end, for ``paddock doctor --full``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

from paddock.doctor.attempts import Outcome, cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS, exhaust, explode
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import attack, file_cases
from paddock.doctor.server import SERVER_ATTACKS, attack_server, server_started
from paddock.doctor.suite import Box, Suite, opened


def length() -> int:
    return sum(1 for _ in cases(GROUPS)) + len(file_cases()) + len(BOMBS) + len(ALLOWANCES) + len(SERVER_ATTACKS)


async def examination() -> AsyncIterator[Outcome]:
    """Every attempt, one after the other; the noisy ones and those on a whole server last."""
    async with opened() as suite:
        for case in cases(GROUPS):
            yield await suite.run(case)
        box = await suite.new_box()
        for step in _steps(suite, box):
            yield await step()
    async with server_started() as target:
        for name in SERVER_ATTACKS:
            yield await attack_server(target, name)


def _steps(suite: Suite, box: Box) -> Iterator[Callable[[], Awaitable[Outcome]]]:
    for name, user in file_cases():
        yield partial(attack, suite, box, name, user)
    for bomb in ALLOWANCES:
        yield partial(exhaust, suite, box, bomb)
    for bomb in BOMBS:
        yield partial(explode, suite, box, bomb)
