"""What providers offer, asked now and then: templates to create from, and the capacity that limits a sandbox."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from paddock.clock import Clock
from paddock.errors import Invalid, ProviderUnavailable, TemplateNotFound
from paddock.lifecycle.provider_calls import ProviderCalls
from paddock.models import ResourceRequest
from paddock.providers.base import Capacity
from paddock.settings import Settings
from paddock.store.records import SandboxRow

_IMAGE = "image:"
"""Prefix by which a create names a container image. Each provider translates it to a template name of its own."""
_TEMPLATES_TTL_S = 5.0
"""How long a provider's list is cached. A template that is not in it may be new, so the provider is asked."""
_CAPACITY_TTL_S = 60.0
"""How long a provider's reported capacity is cached: machines and file systems rarely grow."""
_FIELDS = {
    "cpu": ("cores", "PADDOCK_MAX_CPU"),
    "memory_mb": ("MB of memory", "PADDOCK_MAX_MEMORY_MB"),
    "disk_mb": ("MB of disk", "PADDOCK_MAX_DISK_MB"),
    "pids": ("processes", "PADDOCK_MAX_PIDS"),
}


class TemplateCatalog:
    def __init__(self, clock: Clock, calls: ProviderCalls, providers: Collection[str], default: str) -> None:
        self._clock = clock
        self._calls = calls
        self._default = default
        self._providers = [default, *(name for name in providers if name != default)]
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def all(self) -> Sequence[str]:
        """Templates of every provider; the first is the default provider's default."""
        found = list(await self._of(self._default))
        for name in self._providers[1:]:
            found += [template for template in await self._templates_if_available(name) if template not in found]
        return found

    async def by_provider(self) -> dict[str, Sequence[str]]:
        """Per provider that answers, its default template first; the default provider comes first."""
        found = {self._default: await self._of(self._default)}
        return found | {name: await self._templates_if_available(name) for name in self._providers[1:]}

    def check(self, provider: str | None) -> None:
        if provider is not None and provider not in self._providers:
            known = ", ".join(sorted(self._providers))
            raise Invalid(f"This server has no provider {provider!r}. It has: {known}.")

    async def choose(self, provider: str | None, template: str | None) -> tuple[str, str]:
        """The requested provider; else the default one, unless the template exists only at another."""
        self.check(provider)
        chosen = provider or self._default
        known = await self._of(chosen)
        if template is None:
            return chosen, known[0]
        if await self._has(chosen, template):
            return chosen, self._own_name(chosen, template)
        what = f"image {image!r}" if (image := template.removeprefix(_IMAGE)) != template else f"template {template!r}"
        if provider is None:
            others = [name for name in self._providers[1:] if await self._has_if_available(name, template)]
            if len(others) == 1:
                return others[0], self._own_name(others[0], template)
            if others:
                raise Invalid(f"The providers {', '.join(others)} all have the {what}: say which with `provider`.")
        raise TemplateNotFound(f"Provider {chosen!r} has no {what}. It has: {', '.join(known)}.")

    async def has(self, template: str) -> bool:
        """Whether a create with this template and no provider would succeed."""
        try:
            await self.choose(None, template)
        except TemplateNotFound:
            return False
        except Invalid:  # several providers have it; the create reports that
            return True
        return True

    async def _has(self, name: str, template: str) -> bool:
        own = self._own_name(name, template)
        if own in await self._of(name):
            return True
        return await self._calls.run(self._calls.named(name).has_template(own), "has_template")

    def _own_name(self, provider: str, template: str) -> str:
        image = template.removeprefix(_IMAGE)
        return template if image == template else self._calls.named(provider).template_of_image(image)

    async def _has_if_available(self, name: str, template: str) -> bool:
        """A provider that does not answer must not block the others."""
        try:
            return await self._has(name, template)
        except ProviderUnavailable:
            return False

    async def _templates_if_available(self, name: str) -> Sequence[str]:
        try:
            return await self._of(name)
        except ProviderUnavailable:
            return []

    async def _of(self, name: str) -> Sequence[str]:
        asked_at, known = self._known.get(name, (0.0, []))
        if not 0 <= self._clock.now() - asked_at < _TEMPLATES_TTL_S:
            known = await self._calls.run(self._calls.named(name).templates(), "templates")
            self._known[name] = (self._clock.now(), known)
        return known


class Capacities:
    """Maximum resources of one sandbox: the operator's limit, and never more than the provider's machine has."""

    def __init__(self, settings: Settings, clock: Clock, calls: ProviderCalls) -> None:
        self._settings = settings
        self._clock = clock
        self._calls = calls
        self._known: dict[str, tuple[float, Capacity]] = {}

    async def fit(self, sandbox: SandboxRow, asked: ResourceRequest) -> SandboxRow:
        """Refuse explicit requests above the maximum, and lower defaults to it."""
        has = await self._of(sandbox.provider)
        fitted: dict[str, Any] = {}
        for name, (what, setting) in _FIELDS.items():
            allowed, machine = getattr(self._settings, f"max_{name}"), getattr(has, name)
            most = min((limit for limit in (allowed, machine) if limit), default=None)
            if most is None or getattr(sandbox, name) <= most:
                continue
            wanted = getattr(asked, name)
            if wanted is not None:
                why = f"what its machine has (provider {sandbox.provider!r})" if most == machine else setting
                raise Invalid(
                    f"A sandbox may have at most {_plain(most)} {what} here, {why}; {_plain(wanted)} was asked for.",
                    details={"field": f"resources.{name}", "max": most},
                )
            fitted[name] = most
        return replace(sandbox, **fitted) if fitted else sandbox

    async def _of(self, provider: str) -> Capacity:
        asked_at, known = self._known.get(provider, (0.0, Capacity()))
        if not 0 <= self._clock.now() - asked_at < _CAPACITY_TTL_S:
            known = await self._calls.run(self._calls.named(provider).capacity(), "capacity")
            self._known[provider] = (self._clock.now(), known)
        return known


def _plain(amount: float) -> str:
    return f"{amount:g}" if isinstance(amount, float) else str(amount)
