"""Chooses provider and template for a create: those requested, or the defaults."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddock.clock import Clock
from paddock.errors import Invalid, ProviderUnavailable, TemplateNotFound
from paddock.lifecycle.engine import Engine

_IMAGE = "image:"
"""Prefix by which a create names a container image. Each provider translates it to a template name of its own."""
_CACHE_TTL_S = 5.0
"""How long a provider's list is cached. A template that is not in it may be new, so the provider is asked."""


class TemplateCatalog:
    def __init__(self, clock: Clock, engine: Engine, providers: Collection[str], default: str) -> None:
        self._clock = clock
        self._engine = engine
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
        return await self._engine.call(self._engine.provider(name).has_template(own), "has_template")

    def _own_name(self, provider: str, template: str) -> str:
        image = template.removeprefix(_IMAGE)
        return template if image == template else self._engine.provider(provider).template_of_image(image)

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
        if not 0 <= self._clock.now() - asked_at < _CACHE_TTL_S:
            known = await self._engine.call(self._engine.provider(name).templates(), "templates")
            self._known[name] = (self._clock.now(), known)
        return known
