"""Where an image comes from: a registry, or a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from paddock.images.manifest import Descriptor
from paddock.images.reference import Reference
from paddock.images.registry import Document, RegistryClient


class ImageSource(Protocol):
    async def document(self, descriptor: Descriptor | None = None) -> Document:
        """The manifest or index that is meant; with ``descriptor`` one that an index named."""

    def blob(self, descriptor: Descriptor, begin: int) -> AsyncIterator[bytes]:
        """Its bytes from ``begin`` on; an empty chunk says that they begin at 0 after all."""


class RegistrySource:
    def __init__(self, client: RegistryClient, reference: Reference) -> None:
        self._client = client
        self._reference = reference

    async def document(self, descriptor: Descriptor | None = None) -> Document:
        return await self._client.manifest(self._reference, descriptor)

    def blob(self, descriptor: Descriptor, begin: int) -> AsyncIterator[bytes]:
        return self._client.blob(self._reference, descriptor, begin)
