"""Which providers this server has, from its settings."""

from __future__ import annotations

from paddock.clock import Clock
from paddock.providers.base import Provider
from paddock.settings import Settings

KNOWN = ("local", "docker", "kubernetes", "e2b", "daytona", "fake")
"""Every name that ``SANDBOX_PROVIDER`` understands."""
AVAILABLE = ("fake",)
"""Those that this version can start."""


class NoProvider(ValueError):
    """There is nothing to make sandboxes with; the message says what to do."""


def default_provider(settings: Settings) -> str:
    name = settings.sandbox_provider
    if not name:
        return AVAILABLE[0]
    if name not in KNOWN:
        raise NoProvider(f"SANDBOX_PROVIDER={name!r} is not a provider. Known: {', '.join(KNOWN)}.")
    if name not in AVAILABLE:
        raise NoProvider(
            f"SANDBOX_PROVIDER={name!r} is not part of this version yet. Available: {', '.join(AVAILABLE)}. "
            "Unset it to take the default."
        )
    return name


def build_providers(settings: Settings, clock: Clock) -> dict[str, Provider]:
    name = default_provider(settings)
    from paddock.providers.fake import FakeProvider, Faults

    faults = Faults.from_file(settings.fake_faults) if settings.fake_faults else None
    return {name: FakeProvider(settings.home / "fake", clock, faults)}
