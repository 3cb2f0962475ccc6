"""Manifests and indexes of images, checked before anything is done by them."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddock import errors
from paddock.images.reference import check_digest

MAX_DOCUMENT_BYTES = 8 << 20
MAX_LAYERS = 400
"""The kernel takes 500 in one overlay, and their names must fit into one page of mount options."""

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
_SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1"
ACCEPTED = (OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST)

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Descriptor:
    media_type: str
    digest: str
    size: int

    @classmethod
    def read(cls, found: Any) -> Descriptor:
        if not isinstance(found, dict):
            raise errors.ImageInvalid("The manifest of the image has a part that is not a descriptor.")
        size, media_type = found.get("size"), found.get("mediaType", "")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not isinstance(media_type, str):
            raise errors.ImageInvalid("The manifest of the image has a part without a size or type.")
        return cls(media_type, check_digest(found.get("digest")), size)

    def document(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Platform:
    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Platform:
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(parts):
            raise errors.ImageInvalid(f"{text[:80]!r} is not a platform. Examples: linux/amd64, linux/arm64.")
        return cls(*parts)

    @classmethod
    def of_this_machine(cls) -> Platform:
        machine = platform.machine()
        return cls("linux", _ARCHITECTURES.get(machine, machine))

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


@dataclass(frozen=True, slots=True)
class Manifest:
    config: Descriptor
    layers: tuple[Descriptor, ...]

    @property
    def parts(self) -> tuple[Descriptor, ...]:
        return (self.config, *self.layers)


@dataclass(frozen=True, slots=True)
class Index:
    entries: tuple[tuple[Platform, Descriptor], ...]

    def select(self, wanted: Platform) -> Descriptor:
        """The manifest for this platform. Raises ImageInvalid with those that there are."""
        fitting = [
            (found, descriptor)
            for found, descriptor in self.entries
            if (found.os, found.architecture) == (wanted.os, wanted.architecture)
            and (not wanted.variant or found.variant == wanted.variant)
        ]
        if not fitting:
            there = ", ".join(sorted({str(found) for found, _ in self.entries})) or "none"
            raise errors.ImageInvalid(f"There is no image for {wanted} under this name. There are: {there}.")
        return min(fitting, key=lambda entry: entry[0].variant not in ("", "v8"))[1]


def load_json(content: bytes, what: str) -> dict[str, Any]:
    if len(content) > MAX_DOCUMENT_BYTES:
        raise errors.ImageInvalid(f"The {what} is larger than {MAX_DOCUMENT_BYTES >> 20} MB.")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise errors.ImageInvalid(f"The {what} is not JSON.") from None
    if not isinstance(found, dict):
        raise errors.ImageInvalid(f"The {what} is not a JSON object.")
    return found


def read_manifest(content: bytes, media_type: str = "") -> Index | Manifest:
    """``media_type``: as the registry says, for documents that do not say it themselves."""
    found = load_json(content, "manifest of the image")
    kind = found.get("mediaType") or media_type.partition(";")[0].strip()
    if found.get("schemaVersion") == 1 or str(kind).startswith(_SCHEMA_1):
        raise errors.ImageInvalid("This image has Docker's manifest of version 1, which has no digests. Push it again.")
    if "manifests" in found and "layers" not in found:
        return _read_index(found["manifests"])
    if "layers" not in found or "config" not in found:
        raise errors.ImageInvalid("The manifest of the image has neither layers nor other manifests.")
    return _read_manifest(found)


def _read_index(entries: Any) -> Index:
    if not isinstance(entries, list):
        raise errors.ImageInvalid("The index of the image has no list of manifests.")
    read = []
    for entry in entries:
        descriptor = Descriptor.read(entry)
        named = entry.get("platform") or {}
        names = [named.get(key, "") for key in ("os", "architecture", "variant")] if isinstance(named, dict) else []
        if len(names) == 3 and all(isinstance(name, str) for name in names):  # else: of no platform, as signatures are
            read.append((Platform(*names), descriptor))
    return Index(tuple(read))


def _read_manifest(found: dict[str, Any]) -> Manifest:
    config = Descriptor.read(found["config"])
    if config.media_type not in (OCI_CONFIG, DOCKER_CONFIG, ""):
        raise errors.ImageInvalid(f"This is no container image, but an artifact of type {config.media_type[:100]!r}.")
    if not isinstance(found["layers"], list):
        raise errors.ImageInvalid("The manifest of the image has no list of layers.")
    if len(found["layers"]) > MAX_LAYERS:
        raise errors.ImageInvalid(f"The image has {len(found['layers'])} layers; {MAX_LAYERS} are possible.")
    layers = tuple(Descriptor.read(layer) for layer in found["layers"])
    for layer in layers:
        if not layer.media_type.startswith((OCI_LAYER, _DOCKER_LAYER)):
            raise errors.ImageInvalid(f"A layer of the image has the type {layer.media_type[:100]!r}, not a tar's.")
    return Manifest(config, layers)


def manifest_document(config: Descriptor, layers: Sequence[Descriptor]) -> bytes:
    """For images that come without a manifest of their own."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config.document(),
        "layers": [layer.document() for layer in layers],
    }
    return json.dumps(document, separators=(",", ":")).encode()
