"""Which providers this server has, from its settings."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from paddock.clock import Clock
from paddock.providers.base import Provider
from paddock.settings import Settings

KNOWN = ("local", "docker", "kubernetes", "e2b", "daytona", "fake")
"""Every name that ``SANDBOX_PROVIDER`` understands."""
AVAILABLE = ("local", "e2b", "daytona", "fake")
"""Those that this version can start."""

_VENDORS = ("e2b", "daytona")


class NoProvider(ValueError):
    """There is nothing to make sandboxes with; the message says what to do."""


def default_provider(settings: Settings) -> str:
    """The one that the settings name, or the best that this machine can run."""
    name = settings.sandbox_provider or "local"
    if name not in KNOWN:
        raise NoProvider(f"SANDBOX_PROVIDER={name!r} is not a provider. Known: {', '.join(KNOWN)}.")
    if name not in AVAILABLE:
        raise NoProvider(
            f"SANDBOX_PROVIDER={name!r} is not part of this version yet. Available: {', '.join(AVAILABLE)}. "
            "Unset it to take the default."
        )
    if name == "local" and (problems := local_problems()):
        raise NoProvider(_nothing_to_make_sandboxes_with(problems, chosen=bool(settings.sandbox_provider)))
    if name in _VENDORS and (lack := _vendor(name).problem(settings)):
        raise NoProvider(lack)
    return name


def build_providers(settings: Settings, clock: Clock, name: str | None = None) -> dict[str, Provider]:
    """``name``: the one that :func:`default_provider` chose, where that was asked already."""
    name = name or default_provider(settings)
    # Imported where they are wanted: each brings what the others can do without.
    if name == "local":
        from paddock.providers.local import LocalProvider

        return {name: LocalProvider.from_settings(settings, clock)}
    if name in _VENDORS:
        return {name: _vendor(name).provider(settings, clock)}
    from paddock.providers.fake import FakeProvider, Faults

    faults = Faults.from_file(settings.fake_faults) if settings.fake_faults else None
    return {name: FakeProvider(settings.home / "fake", clock, faults)}


def _vendor(name: str) -> Any:
    """The package of a provider at somebody else's; its SDK is loaded when it is used."""
    return import_module(f"paddock.providers.{name}")


def local_problems() -> list[str]:
    """What keeps the local provider from working on this machine; empty when it can."""
    from paddock.providers.local import probe

    return list(probe.check())


def _nothing_to_make_sandboxes_with(problems: list[str], *, chosen: bool) -> str:
    found = " ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
    if chosen:
        return f"SANDBOX_PROVIDER=local cannot make sandboxes on this machine: {found}"
    return (
        f"There is nothing to make sandboxes with. The local provider cannot run on this machine: {found} "
        "Docker, the next choice, is not part of this version yet. Put right what is said above; or, to try Paddock "
        "without isolation, set SANDBOX_PROVIDER=fake."
    )
