"""Images in files: an OCI layout, as a directory or a tar, or what ``docker save`` writes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import posixpath
import tarfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paddock import errors
from paddock.images.manifest import (
    MAX_DOCUMENT_BYTES,
    OCI_CONFIG,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    manifest_document,
)
from paddock.images.reference import Reference, check_digest
from paddock.images.registry import Document

_CHUNK = 4 << 20
_MAX_ENTRIES = 100_000
_MAX_LINKS = 8
_REFERENCE = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


class _Files(ABC):
    """The files of an archive by their names."""

    @abstractmethod
    def open(self, name: str) -> tuple[BinaryIO, int]:
        """At its beginning, and its size. Raises FileNotFoundError."""

    def read(self, name: str) -> bytes:
        content, size = self.open(name)
        with content:
            if size > MAX_DOCUMENT_BYTES:
                raise errors.ImageInvalid(
                    f"{name[:100]!r} in the archive is larger than {MAX_DOCUMENT_BYTES >> 20} MB."
                )
            return content.read(size)


class _Folder(_Files):
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, name: str) -> tuple[BinaryIO, int]:
        path = self._root / name
        if not path.resolve().is_relative_to(self._root.resolve()) or not path.is_file():
            raise FileNotFoundError(name)
        content = path.open("rb")
        return content, os.fstat(content.fileno()).st_size


class _Tar(_Files):
    """Uncompressed, so that any of its files can be read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        try:
            with tarfile.open(path, "r:") as tar:
                while (entry := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]
                    self._note(entry)
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise errors.ImageInvalid(
                f"{path.name} is no archive of an image: {error}. A compressed one has to be decompressed first."
            ) from None

    def _note(self, entry: tarfile.TarInfo) -> None:
        name = posixpath.normpath(entry.name)
        if entry.issym():
            self._links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.linkname))
        elif entry.islnk():
            self._links[name] = posixpath.normpath(entry.linkname)
        elif entry.isreg() and not entry.issparse():
            self._places[name] = (entry.offset_data, entry.size)
        if len(self._places) + len(self._links) > _MAX_ENTRIES:
            raise errors.ImageInvalid(f"{self._path.name} has too many files for an archive of images.")

    def open(self, name: str) -> tuple[BinaryIO, int]:
        name = posixpath.normpath(name)
        for _ in range(_MAX_LINKS):
            if name not in self._links:
                break
            name = self._links[name]
        if name not in self._places:
            raise FileNotFoundError(name)
        offset, size = self._places[name]
        content = self._path.open("rb")
        content.seek(offset)
        return content, size


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    names: tuple[Reference, ...]
    """Empty: the archive does not say."""
    source: ArchiveSource


class ArchiveSource:
    """One image of an archive."""

    def __init__(self, files: _Files, document: Document, places: dict[str, str] | None = None) -> None:
        self._files = files
        self._document = document
        self._places = places
        """Where the blobs are; None: by their digests, as in an OCI layout."""

    async def document(self, descriptor: Descriptor | None = None) -> Document:
        if descriptor is None:
            return self._document
        with _failures(descriptor.digest):
            content = await asyncio.to_thread(self._files.read, self._place(descriptor.digest))
        return Document(_checked(content, descriptor.digest), descriptor.media_type, descriptor.digest)

    async def blob(self, descriptor: Descriptor, begin: int) -> AsyncIterator[bytes]:
        with _failures(descriptor.digest):
            content, left = await asyncio.to_thread(self._files.open, self._place(descriptor.digest))
        with content:
            content.seek(begin, os.SEEK_CUR)
            left -= begin
            while left > 0 and (chunk := await asyncio.to_thread(content.read, min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk

    def _place(self, digest: str) -> str:
        return _by_digest(digest) if self._places is None else self._places.get(digest, "")


def open_archive(path: Path) -> list[ArchivedImage]:
    """The images in it, in its order. Blocking. Raises ImageInvalid with what is wrong."""
    if not path.exists():
        raise errors.PathNotFound(f"There is no file {str(path)!r}.")
    files: _Files = _Folder(path) if path.is_dir() else _Tar(path)
    for name, read in (("index.json", _oci_images), ("manifest.json", _docker_images)):
        try:
            content = files.read(name)
        except FileNotFoundError:
            continue
        try:
            return list(read(files, json.loads(content)))
        except FileNotFoundError as error:
            raise errors.ImageInvalid(f"{path.name} is not complete: {error} is missing.") from None
        except (ValueError, RecursionError):
            raise errors.ImageInvalid(f"{name} in {path.name} is not JSON.") from None
    raise errors.ImageInvalid(
        f"{path.name} is no archive of an image: it has neither the index.json of an OCI layout nor the manifest.json "
        "of `docker save`."
    )


def _oci_images(files: _Files, index: Any) -> Iterator[ArchivedImage]:
    entries = index.get("manifests") if isinstance(index, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        descriptor = Descriptor.read(entry)
        notes = entry.get("annotations")
        given = [notes.get(_CONTAINERD_NAME), notes.get(_REFERENCE)] if isinstance(notes, dict) else []
        full = [name for name in given if isinstance(name, str) and ("/" in name or ":" in name)]
        content = _checked(files.read(_by_digest(descriptor.digest)), descriptor.digest)
        document = Document(content, descriptor.media_type, descriptor.digest)
        yield ArchivedImage(tuple(Reference.parse(name) for name in full[:1]), ArchiveSource(files, document))


def _docker_images(files: _Files, entries: Any) -> Iterator[ArchivedImage]:
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("Config"), str):
            raise errors.ImageInvalid("The manifest.json of the archive is not as `docker save` writes it.")
        config = files.read(entry["Config"])
        config_digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        places = {config_digest: entry["Config"]}
        layers = []
        for name in entry.get("Layers") or ():
            digest, size = _hashed(files, str(name))
            places[digest] = str(name)
            layers.append(Descriptor(OCI_LAYER, digest, size))
        content = manifest_document(Descriptor(OCI_CONFIG, config_digest, len(config)), layers)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        tags = [tag for tag in entry.get("RepoTags") or () if isinstance(tag, str)]
        source = ArchiveSource(files, Document(content, OCI_MANIFEST, digest), places)
        yield ArchivedImage(tuple(Reference.parse(tag) for tag in tags), source)


def _by_digest(digest: str) -> str:
    algorithm, _, value = check_digest(digest).partition(":")
    return f"blobs/{algorithm}/{value}"


def _hashed(files: _Files, name: str) -> tuple[str, int]:
    content, size = files.open(name)
    seen, left = hashlib.sha256(), size
    with content:
        while left and (chunk := content.read(min(left, _CHUNK))):
            seen.update(chunk)
            left -= len(chunk)
    return f"sha256:{seen.hexdigest()}", size


def _checked(content: bytes, digest: str) -> bytes:
    algorithm, _, value = check_digest(digest).partition(":")
    if hashlib.new(algorithm, content).hexdigest() != value:
        raise errors.ImageCorrupt(f"A document in the archive is not what its digest says: {digest}.")
    return content


@contextmanager
def _failures(digest: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise errors.ImageInvalid(f"The archive is not complete: {digest} is missing.") from None
