"""The kinds of sandboxes to test: those of this machine and of the installation's settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paddock import errors
from paddock.doctor.attempts import AttemptOutcome, cases
from paddock.doctor.bombs import ALLOWANCES, BOMBS, exhaust, run_bomb
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.checks import Diagnosis
from paddock.doctor.file_api import attack, file_cases
from paddock.doctor.kinds import SandboxKind, docker, hardened, local
from paddock.doctor.server.attacks import SERVER_ATTACKS, attack_server
from paddock.doctor.server.target import server_started
from paddock.doctor.suite import Suite, TestSandbox, opened
from paddock.providers.local.gvisor.runsc import RunscSettings
from paddock.settings import Settings

_NOT_IN_USE = "an engine answers, but this installation does not use it (SANDBOX_PROVIDERS=local,docker does)"
_AT_A_VENDOR = "its machines are the vendor's"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kind of sandbox that was not tested, or not completely."""

    kind: str
    reason: str
    in_use: bool
    """Whether this installation creates such sandboxes."""


@dataclass(frozen=True, slots=True)
class Plan:
    kinds: Sequence[SandboxKind]
    left_out: Sequence[LeftOut]


def planned(settings: Settings, diagnosis: Diagnosis) -> Plan:
    """The local provider at each level that the machine supports, and Docker if it is used."""
    used = _used(settings, diagnosis)
    runsc, engine = diagnosis.problem("own kernel"), diagnosis.problem("docker engine")
    kinds: list[SandboxKind] = []
    if diagnosis.report is not None:
        kinds.append(local())
        if runsc is None:
            kinds.append(hardened(RunscSettings(settings.runsc, settings.runsc_platform)))
    if engine is None and "docker" in used:
        kinds.append(docker(settings))
    return Plan(kinds, list(_left_out(settings, diagnosis, used)))


def _left_out(settings: Settings, diagnosis: Diagnosis, used: Sequence[str]) -> Iterator[LeftOut]:
    runsc, engine = diagnosis.problem("own kernel"), diagnosis.problem("docker engine")
    if diagnosis.report is None:
        reason = diagnosis.problem("sandboxes") or diagnosis.problem("native programs") or "sandboxes do not run here"
        yield LeftOut("local", reason, "local" in used)
    elif runsc is not None:
        yield LeftOut("local, hardened", runsc, settings.min_isolation == "hardened")
    if engine is not None or "docker" not in used:
        yield LeftOut("docker", engine or _NOT_IN_USE, "docker" in used)
    for name in used:
        if name not in ("local", "docker"):
            yield LeftOut(name, _AT_A_VENDOR, in_use=True)


def _used(settings: Settings, diagnosis: Diagnosis) -> Sequence[str]:
    """The providers of this installation, selected as a server does."""
    named = dict.fromkeys(name for name in (settings.sandbox_provider, *settings.sandbox_providers) if name)
    if named:
        return list(named)
    if diagnosis.report is not None:
        return ["local"]
    return ["docker"] if diagnosis.problem("docker engine") is None else []


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
        yield partial(run_bomb, suite, box, bomb)
