"""Brings an image into the store: downloads what is missing, side by side, and unpacks each layer once."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.disk_space import room
from paddock.images.config import ImageConfig
from paddock.images.manifest import Descriptor, Index, Manifest, Platform, read_manifest
from paddock.images.reference import Reference
from paddock.images.source import ImageSource
from paddock.images.store import Image, ImageStore, Lease, try_lock
from paddock.images.unpack import Limits, unpack

_DOWNLOADS = 4
_UNPACKED_AT_ONCE = 2
_LOCK_INTERVAL_S = 0.2
_HASH_CHUNK = 4 << 20
_REPORT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    layers: int = 0
    unpacked: int = 0
    size: int = 0
    """Bytes of all blobs."""
    downloaded: int = 0


Hear = Callable[[Progress], None]


@dataclass(slots=True)
class Pull:
    store: ImageStore
    source: ImageSource
    limits: Limits
    hear: Hear
    progress: Progress = Progress()
    _downloads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_DOWNLOADS))
    _unpackings: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_UNPACKED_AT_ONCE))
    _reported: int = 0

    async def run(self, reference: Reference, platform: Platform | None = None) -> Image:
        """The image under this name, as it is there now. What was downloaded before an error is kept for the next."""
        self.store.create_layout()
        wanted = platform or Platform.of_this_machine()
        with self.store.lease() as lease:
            try:
                digest = await self._fetch(lease, wanted)
            except OSError as error:
                raise _disk_error(error) from None
            image = self.store.image(digest)
            self.store.name(reference, digest)
            return image

    async def _fetch(self, lease: Lease, platform: Platform) -> str:
        found = await self.source.document()
        read = read_manifest(found.content, found.media_type)
        if isinstance(read, Index):
            found = await self.source.document(read.select(platform))
            read = read_manifest(found.content, found.media_type)
        if not isinstance(read, Manifest):
            raise errors.ImageInvalid("The index of the image leads to another index.")
        lease.hold({found.digest, *(part.digest for part in read.parts)})
        self._require_room(read)
        self._tell(layers=len(read.layers), size=sum(part.size for part in read.parts))
        await self._download(read.config)
        config = ImageConfig.read(await asyncio.to_thread(self.store.read_blob, read.config.digest))
        config.require(platform)
        if len(config.diff_ids) != len(read.layers):
            raise errors.ImageInvalid("The manifest and the configuration of the image name different layers.")
        lease.hold(config.diff_ids)
        pairs = dict(zip(config.diff_ids, read.layers, strict=True))  # a layer may come twice
        self._tell(layers=len(pairs))
        try:
            async with asyncio.TaskGroup() as group:
                for diff_id, descriptor in pairs.items():
                    group.create_task(self._layer(diff_id, descriptor))
        except BaseExceptionGroup as failed:
            raise _first(failed) from None
        await asyncio.to_thread(self.store.write_blob, found.content, found.digest)
        return found.digest

    async def _layer(self, diff_id: str, descriptor: Descriptor) -> None:
        async with self._downloads:
            await self._download(descriptor)
        if self.store.layer(diff_id) is None:
            async with self._unpackings:
                await self._unpack(diff_id, descriptor)
        self._tell(unpacked=self.progress.unpacked + 1)

    async def _unpack(self, diff_id: str, descriptor: Descriptor) -> None:
        with self.store.layer_draft() as root:
            made = await unpack(self.store.blob(descriptor.digest), root, self.limits, descriptor.digest)
            if made.diff_id != diff_id:
                raise errors.ImageCorrupt(
                    f"The layer {descriptor.digest} unpacks to {made.diff_id}, and the image says {diff_id}."
                )
            await asyncio.to_thread(self.store.keep_layer, root, made)

    async def _download(self, descriptor: Descriptor) -> None:
        if self.store.blob(descriptor.digest).exists():
            self._tell(downloaded=self.progress.downloaded + descriptor.size)
            return
        async with _exclusive(self.store.draft_of(descriptor.digest)) as (draft, file):
            if self.store.blob(descriptor.digest).exists():  # by another pull, which was waited for
                self._tell(downloaded=self.progress.downloaded + descriptor.size)
                draft.unlink(missing_ok=True)
                return
            await self._fill(file, descriptor)
            self.store.keep_blob(draft, descriptor.digest)

    async def _fill(self, file: int, descriptor: Descriptor) -> None:
        there = os.fstat(file).st_size
        if there > descriptor.size:
            os.ftruncate(file, 0)
            there = 0
        seen = await asyncio.to_thread(_hash_file, file, descriptor.digest)
        counted = self.progress.downloaded
        self._tell(downloaded=counted + there)
        if there < descriptor.size or not descriptor.size:
            chunks: Any = self.source.blob(descriptor, there)
            async with aclosing(chunks):
                async for chunk in chunks:
                    if not chunk:
                        self._tell(downloaded=self.progress.downloaded - there)
                        os.ftruncate(file, 0)
                        seen, there = hashlib.new(seen.name), 0
                        continue
                    await asyncio.to_thread(_append, file, chunk, there, seen)
                    there += len(chunk)
                    self._tell(downloaded=self.progress.downloaded + len(chunk))
        if there != descriptor.size or seen.hexdigest() != descriptor.digest.partition(":")[2]:
            os.ftruncate(file, 0)  # nothing of it can be trusted
            raise errors.ImageCorrupt(
                f"{there} bytes came for {descriptor.digest}, of {descriptor.size}, with the digest "
                f"{seen.name}:{seen.hexdigest()}."
            )

    def _require_room(self, manifest: Manifest) -> None:
        missing = sum(part.size for part in manifest.parts if not self.store.blob(part.digest).exists())
        for part in manifest.parts:
            if part.size > self.limits.layer_bytes:
                raise errors.ImageInvalid(
                    f"The layer {part.digest} has {part.size >> 20} MB; {self.limits.layer_bytes >> 20} MB are allowed."
                )
        free = room(self.store.root).free - self.limits.free_bytes(self.store.root)
        if missing > free:
            raise errors.InsufficientStorage(
                f"The image needs {missing >> 20} MB for its download alone, and the host's disk has "
                f"{max(0, free) >> 20} MB to spare."
            )

    def _tell(self, **changes: int) -> None:
        before = self.progress
        self.progress = replace(before, **changes)
        steps = (before.downloaded // _REPORT_BYTES, self.progress.downloaded // _REPORT_BYTES)
        if set(changes) != {"downloaded"} or steps[0] != steps[1] or self.progress.downloaded == self.progress.size:
            self.hear(self.progress)


@asynccontextmanager
async def _exclusive(draft: Path) -> AsyncIterator[tuple[Path, int]]:
    """The draft of a blob, which only one pull of all processes continues."""
    while True:
        draft.touch(mode=0o600)  # noqa: ASYNC240 - no content is read or written
        if (lock := try_lock(draft)) is None:
            await asyncio.sleep(_LOCK_INTERVAL_S)
            continue
        file = -1
        try:
            try:
                file = os.open(draft, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            if not os.path.samestat(os.fstat(file), os.fstat(lock)):
                continue  # the one that was locked has been completed meanwhile
            yield draft, file
            return
        finally:
            os.close(lock)
            if file >= 0:
                os.close(file)


def _hash_file(file: int, digest: str) -> Any:
    seen = hashlib.new(digest.partition(":")[0])
    at = 0
    while chunk := os.pread(file, _HASH_CHUNK, at):
        seen.update(chunk)
        at += len(chunk)
    return seen


def _append(file: int, chunk: bytes, at: int, seen: Any) -> None:
    rest = memoryview(chunk)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
    seen.update(chunk)


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of several that failed at once; the others are consequences or the same."""
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _disk_error(error: OSError) -> errors.PaddockError:
    return errors.InsufficientStorage(f"The image cannot be kept on the host's disk: {error.strerror or error}.")
