"""The complete escape suite, for ``paddock doctor --full``: on every kind of sandbox of a plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from paddock import errors
from paddock.doctor.attempts import AttemptOutcome, cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS, exhaust, explode
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import attack, file_cases
from paddock.doctor.kinds import SandboxKind
from paddock.doctor.plan import LeftOut
from paddock.doctor.server.attacks import SERVER_ATTACKS, attack_server
from paddock.doctor.server.target import server_started
from paddock.doctor.suite import Suite, TestSandbox, opened


def length(kinds: Sequence[SandboxKind]) -> int:
    each = sum(1 for _ in cases(GROUPS)) + len(file_cases()) + len(BOMBS) + len(ALLOWANCES) + len(SERVER_ATTACKS)
    return each * len(kinds)


async def examination(kinds: Sequence[SandboxKind]) -> AsyncIterator[AttemptOutcome | LeftOut]:
    """Run every attempt on every kind, one after the other; resource exhaustion and attacks on a whole server last."""
    for kind in kinds:
        label = kind.name
        try:
            async for label, outcome in _on(kind):
                yield replace(outcome, kind=label)
        except errors.PaddockError as problem:
            yield LeftOut(label, problem.message, in_use=True)


async def _on(kind: SandboxKind) -> AsyncIterator[tuple[str, AttemptOutcome]]:
    async with opened(kind) as suite:
        label = f"{kind.name}, {(await suite.isolation()).level.value}"
        for case in cases(GROUPS):
            yield label, await suite.run(case)
        box = await suite.new_box()
        for step in _steps(suite, box):
            yield label, await step()
    async with server_started(kind) as target:
        for name in SERVER_ATTACKS:
            yield label, await attack_server(target, name)


def _steps(suite: Suite, box: TestSandbox) -> Iterator[Callable[[], Awaitable[AttemptOutcome]]]:
    for name, user in file_cases():
        yield partial(attack, suite, box, name, user)
    for bomb in ALLOWANCES:
        yield partial(exhaust, suite, box, bomb)
    for bomb in BOMBS:
        yield partial(explode, suite, box, bomb)
