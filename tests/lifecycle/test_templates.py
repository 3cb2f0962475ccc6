"""Several providers on one server: the default, the one that is named, or the only one that has the template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import Invalid, ProviderUnavailable, TemplateNotFound
from paddock.providers.base import MachineInfo, Provider, SandboxSpec
from paddock.providers.local import LocalProvider
from paddock.server.context import ServerContext, build_context
from tests.support import local_home
from tests.support.world import World


class Second(LocalProvider):
    name = "second"
    has = ("special", "shared")
    silent = False

    async def templates(self) -> list[str]:
        if self.silent:
            raise ProviderUnavailable("No answer.")
        return list(self.has)

    async def create(self, spec: SandboxSpec) -> MachineInfo:
        return await super().create(replace(spec, template_id=(await super().templates())[0]))


class Third(Second):
    name = "third"
    has = ("shared",)


class Several(World):
    """A server with the local provider and more beside it."""

    others: tuple[Provider, ...] = ()

    def another_house(self) -> ServerContext:
        made: dict[str, Provider] = {each.name: each for each in (self.make_provider(), *self.others)}
        return build_context(self.settings, clock=self.clock, providers=made)

    def provider_of(self, name: str) -> Provider:
        return self.context.providers[name]

    async def made(self, **fields: str) -> tuple[str, str]:
        sandbox = (await self.create(**fields)).sandbox
        return sandbox.provider, sandbox.template_id


@pytest.fixture
async def several(tmp_path: Path) -> AsyncIterator[Several]:
    made = Several(tmp_path, f"sqlite:///{tmp_path / 'paddock.db'}")
    made.others = tuple(kind(local_home.lay_out(tmp_path / kind.name), made.clock) for kind in (Second, Third))
    await made.start()
    await made.make_accounts()
    yield made
    await made.end()
    for other in made.others:
        await local_home.clear(tmp_path / other.name)


async def test_who_asks_for_nothing_gets_the_default(several: Several) -> None:
    provider, template = await several.made()
    assert (provider, [template]) == ("local", await several.provider_of("local").templates())


async def test_the_provider_that_is_named_makes_it_of_its_own_default(several: Several) -> None:
    assert await several.made(provider="second") == ("second", "special")
    assert await several.made(provider="third", template_id="shared") == ("third", "shared")


async def test_a_template_that_only_one_has_chooses_that_one(several: Several) -> None:
    assert await several.made(template_id="special") == ("second", "special")


async def test_a_template_that_several_have_needs_a_name(several: Several) -> None:
    with pytest.raises(Invalid, match="second, third"):
        await several.made(template_id="shared")


async def test_a_template_of_nobody_and_a_provider_that_is_none_are_refused(several: Several) -> None:
    with pytest.raises(TemplateNotFound, match="'nothing'"):
        await several.made(template_id="nothing")
    with pytest.raises(TemplateNotFound, match="'third'"):
        await several.made(provider="third", template_id="special")
    with pytest.raises(Invalid, match="local, second, third"):
        await several.made(provider="fourth")


async def test_every_template_is_listed_the_default_first(several: Several) -> None:
    own = await several.provider_of("local").templates()
    assert await several.context.controller.templates() == [*own, "special", "shared"]


async def test_a_provider_that_does_not_answer_keeps_nobody_from_the_others(several: Several) -> None:
    second = several.others[0]
    assert isinstance(second, Second)
    second.silent = True
    assert (await several.made())[0] == "local"
    assert await several.made(template_id="shared") == ("third", "shared")


async def test_each_sandbox_stays_with_its_provider(several: Several) -> None:
    sandbox = (await several.create(template_id="special")).sandbox
    await several.context.controller.pause(several.alice, sandbox.sandbox_id)
    await several.restart()
    await several.context.controller.resume(several.alice, sandbox.sandbox_id)
    assert await several.others[0].inspect(sandbox.sandbox_id) is not None
    await several.context.controller.delete(several.alice, sandbox.sandbox_id)
    assert await several.others[0].list() == []
