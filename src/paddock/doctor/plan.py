"""The kinds of sandboxes to test: those of this machine and of the installation's settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.doctor.checks import Diagnosis
from paddock.doctor.kinds import SandboxKind, docker, hardened, local
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
