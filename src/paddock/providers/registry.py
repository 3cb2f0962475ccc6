"""Which providers this server has, from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from paddock.clock import Clock
from paddock.errors import PaddockError
from paddock.providers.base import Provider
from paddock.settings import Settings

KNOWN = ("local", "docker", "kubernetes", "e2b", "daytona")
"""Every name that ``SANDBOX_PROVIDER`` understands."""
AVAILABLE = ("local", "docker", "e2b", "daytona")
"""Those that this version can start."""
RETIRED = {
    "fake": "The provider 'fake' is no longer part of Paddock: use 'local', which needs no root and no Docker, and "
    "isolates what it runs. Sandboxes that were made with 'fake' cannot be used any more."
}
"""Those of earlier versions, with what to do instead."""

_VENDORS = ("e2b", "daytona")
ENTRY_POINTS = "paddock.providers"
"""The group in which other packages name their providers: a function of the settings and the clock for each."""


class NoProvider(ValueError):
    """There is nothing to make sandboxes with; the message says what to do."""


def default_provider(settings: Settings) -> str:
    """The one that the settings name, or the best of their list, or the best that this machine can run."""
    for name in settings.sandbox_providers:
        _check(name, "SANDBOX_PROVIDERS", settings)
    named = settings.sandbox_provider or next(iter(settings.sandbox_providers), "")
    if named:
        _check(named, "SANDBOX_PROVIDER", settings)
        if named == "local" and (problems := local_problems()):
            raise NoProvider(f"SANDBOX_PROVIDER=local cannot make sandboxes on this machine: {_numbered(problems)}")
        return named
    problems = local_problems()
    if not problems:
        return "local"
    engine = docker_problem(settings)
    if engine is None:
        return "docker"
    raise NoProvider(
        f"There is nothing to make sandboxes with. The local provider cannot run on this machine: "
        f"{_numbered(problems)} Docker, the next choice, cannot be used either: {engine} Put right what is said above."
    )


def build_providers(settings: Settings, clock: Clock, name: str | None = None) -> dict[str, Provider]:
    """All that a create may ask for, the default first.

    ``name``: the default that :func:`default_provider` chose, where that was asked already.
    """
    names = dict.fromkeys([name or default_provider(settings), *settings.sandbox_providers])
    return {each: _build(each, settings, clock) for each in names}


def build_used(settings: Settings, clock: Clock) -> dict[str, Provider]:
    """Those that have machines of this home alone, whatever the settings name now. Raises where one cannot be had here.

    Machines at a vendor under a name that was given (``PADDOCK_INSTALLATION``) may be other servers', too."""
    names = [name for name in AVAILABLE if _has_machines(name, settings.home)]
    if settings.installation:
        names = [name for name in names if name not in _VENDORS]
    for name in names:
        _check(name, "SANDBOX_PROVIDER", settings)
    return {name: _build(name, settings, clock) for name in names}


def local_problems() -> Sequence[str]:
    """What keeps the local provider from working on this machine; empty when it can."""
    from paddock.providers.local import host

    return host.local_problems()


def docker_problem(settings: Settings) -> str | None:
    """What keeps the Docker provider from working; None when an engine answers."""
    from paddock.providers.docker import probe

    return probe.check(probe.EngineOptions.of(settings)).problem


def _build(name: str, settings: Settings, clock: Clock) -> Provider:
    provider = _build_real(name, settings, clock)
    if settings.faults is None:
        return provider
    from paddock.providers.faults import Faults, with_faults

    return with_faults(provider, Faults.from_file(settings.faults))


def _build_real(name: str, settings: Settings, clock: Clock) -> Provider:
    # Imported where they are wanted: each brings what the others can do without.
    if name == "local":
        from paddock.providers.local import LocalProvider

        return LocalProvider.from_settings(settings, clock)
    if name == "docker":
        from paddock.providers.docker import DockerProvider

        try:
            return DockerProvider.from_settings(settings, clock)
        except PaddockError as error:
            raise NoProvider(error.message) from error
    if name in _VENDORS:
        provider: Provider = _vendor(name).provider(settings, clock)
        return provider
    entry = _installed(name)
    assert entry is not None  # noqa: S101 - for the type checker: `_check` has refused other names
    return _load(entry, settings, clock)


def _check(name: str, setting: str, settings: Settings) -> None:
    if name in RETIRED:
        raise NoProvider(f"{setting}={name!r}: {RETIRED[name]}")
    installed = _installed(name) is not None
    if name not in KNOWN and not installed:
        others = sorted(each.name for each in entry_points(group=ENTRY_POINTS))
        raise NoProvider(f"{setting}={name!r} is not a provider. Known: {', '.join([*KNOWN, *others])}.")
    if name not in AVAILABLE and not installed:
        raise NoProvider(
            f"{setting}={name!r} is not part of this version yet. Available: {', '.join(AVAILABLE)}. "
            "Unset it to take the default."
        )
    if name in _VENDORS and (lack := _vendor(name).problem(settings)):
        raise NoProvider(lack)


def _has_machines(name: str, home: Path) -> bool:
    """Or may have: what a vendor has is known to the vendor only."""
    folder = home / name
    if name in _VENDORS:
        return folder.is_dir()
    places = (folder / place for place in ("sandboxes", "warm", "drafts", "trash"))
    return any(place.is_dir() and any(place.iterdir()) for place in places)


def _installed(name: str) -> EntryPoint | None:
    """A provider of another package. Our own names stay ours."""
    return None if name in AVAILABLE else next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)


def _load(entry: EntryPoint, settings: Settings, clock: Clock) -> Provider:
    try:
        provider: Provider = entry.load()(settings, clock)
    except PaddockError as error:
        raise NoProvider(error.message) from error
    except Exception as error:
        package = entry.dist.name if entry.dist is not None else entry.value
        raise NoProvider(f"The provider {entry.name!r} of the package {package} cannot be loaded: {error}") from error
    return provider


def _vendor(name: str) -> Any:
    """The package of a provider at somebody else's; its SDK is loaded when it is used."""
    return import_module(f"paddock.providers.{name}")


def _numbered(problems: Sequence[str]) -> str:
    return " ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
