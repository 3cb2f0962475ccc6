"""Templates are images by name: those that the settings list, and with their leave every image that the engine has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paddock import errors
from paddock.providers.docker.engine import DockerEngine


class EngineImages:
    def __init__(self, engine: DockerEngine, listed: Sequence[str], *, any_local: bool, pull: bool) -> None:
        self._engine = engine
        self._listed = list(dict.fromkeys(listed))
        self._any_local = any_local
        self._pull = pull
        self._pulls: dict[str, asyncio.Task[None]] = {}

    async def names(self) -> list[str]:
        """The first is the default."""
        if not self._any_local:
            return list(self._listed)
        tags = [tag for image in await self._engine.images() for tag in image.get("RepoTags") or ()]
        return list(dict.fromkeys([*self._listed, *sorted(tag for tag in tags if "<none>" not in tag)]))

    async def require(self, name: str) -> list[str]:
        """The environment that it gives its programs. Raises unless a sandbox can be made of it now."""
        known = await self.names()
        if name not in known:
            raise errors.TemplateNotFound(f"Provider 'docker' has no template {name!r}. It has: {', '.join(known)}.")
        found = await self._engine.image(name)
        if found is None and self._pull:
            await self._pulled(name)
            found = await self._engine.image(name)
        if found is None:
            raise errors.TemplateNotFound(
                f"The engine has no image {name!r}. Fetch it (docker pull {name}), or let Paddock do so with "
                "PADDOCK_DOCKER_PULL=true."
            )
        return list((found.get("Config") or {}).get("Env") or ())

    async def close(self) -> None:
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    async def _pulled(self, name: str) -> None:
        """One pull for all who wait; it goes on when they stop waiting, and the next create finds more of it done."""
        if name not in self._pulls:
            self._pulls[name] = asyncio.create_task(self._engine.pull(name))
            self._pulls[name].add_done_callback(lambda _: self._pulls.pop(name, None))
        await asyncio.shield(self._pulls[name])
