"""What can be done with the images of one server: fetch, list, remove, export."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.images import archive, export, garbage
from paddock.images.manifest import Platform
from paddock.images.pull import Hear, Pull
from paddock.images.reference import Reference
from paddock.images.registries import Registries
from paddock.images.registry import RegistryClient
from paddock.images.source import RegistrySource
from paddock.images.store import IMAGES, ImageStore, NamedImage
from paddock.images.unpack import Limits
from paddock.settings import Settings

_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ListedImage:
    reference: Reference
    digest: str
    size: int
    pulled_at: float
    sandboxes: int
    complete: bool


class Images:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = settings.home / _LOCAL
        self.store = ImageStore(settings.home / IMAGES)
        self._limits = Limits(layer_bytes=settings.image_layer_mb << 20, reserve_mb=settings.disk_reserve_mb)

    async def pull(self, reference: Reference, hear: Hear, platform: Platform | None = None) -> NamedImage:
        registries = Registries.load(self._settings.home, self._docker_config())
        async with RegistryClient(registries, stall_timeout=self._settings.image_stall_timeout) as client:
            source = RegistrySource(client, reference)
            await Pull(self.store, source, self._limits, hear).run(reference, platform)
        return self.store.require(reference)

    async def import_file(self, path: Path, name: Reference | None, hear: Hear) -> list[NamedImage]:
        """Every image in the file, under the names that it gives; ``name`` instead where there is one image."""
        found = await asyncio.to_thread(archive.open_archive, path)
        if name is not None and len(found) != 1:
            raise errors.Invalid(f"{path.name} has {len(found)} images, which cannot all be called {name.familiar!r}.")
        if name is None and any(not each.names for each in found):
            raise errors.Invalid(f"{path.name} does not say what its image is called. Give it a name: --name NAME:TAG")
        imported = []
        for each in found:
            for reference in [name] if name is not None else each.names:
                await Pull(self.store, each.source, self._limits, hear).run(reference)
                imported.append(self.store.require(reference))
        return imported

    def export_file(self, reference: Reference, target: Path) -> None:
        export.export(self.store, reference, self.store.require(reference).image, target)

    def every(self) -> list[ListedImage]:
        used = garbage.used_by_sandboxes(self._local)
        listed = []
        for reference, digest, pulled_at in self.store.names():
            try:
                size, complete = self.store.image(digest).size, True
            except errors.ImageNotFound:
                size, complete = 0, False
            listed.append(ListedImage(reference, digest, size, pulled_at, used.get(digest, 0), complete))
        return listed

    def get(self, reference: Reference) -> NamedImage:
        return self.store.require(reference)

    def remove(self, references: Collection[Reference]) -> garbage.Removed:
        """The names; what nothing stands on any more goes with them."""
        self.store.create_layout()
        for reference in references:
            if not self.store.remove_name(reference):
                raise errors.ImageNotFound(f"There is no image {reference.familiar!r} on this machine.")
        return garbage.collect(self.store, self._local)

    def prune(self, *, unused: bool) -> garbage.Removed:
        """What stopped pulls have downloaded goes, too. ``unused``: also the names of images without sandboxes."""
        self.store.create_layout()
        if unused:
            for each in self.every():
                if not each.sandboxes:
                    self.store.remove_name(each.reference)
        return garbage.collect(self.store, self._local, drafts_older_than=0)

    def _docker_config(self) -> Path:
        folder = self._settings.docker_config
        return (Path(folder) if folder else Path.home() / ".docker") / "config.json"
