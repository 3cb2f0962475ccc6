"""The name of an image, as ``docker pull`` takes it: ``python:3.12``, ``ghcr.io/team/app@sha256:…``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from paddock import errors

DOCKER_HUB = "docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MAX_LENGTH = 512
_MAX_REPOSITORY = 255


def check_digest(text: object) -> str:
    """The digest, if it is one of an algorithm that is known here."""
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise errors.ImageInvalid(f"{str(text)[:100]!r} is not a digest (sha256 or sha512).")
    return text


@dataclass(frozen=True, slots=True)
class Reference:
    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Raises ImageInvalid. Without a tag and a digest the tag is ``latest``."""
        name, at, digest = text.partition("@")
        if len(text) > _MAX_LENGTH or (at and not _DIGEST.fullmatch(digest)):
            raise _invalid(text)
        name, tag = _split_tag(name)
        registry, repository = _split_registry(name)
        if (
            not _REGISTRY.fullmatch(registry)
            or not _REPOSITORY.fullmatch(repository)
            or len(repository) > _MAX_REPOSITORY
            or (tag is not None and not _TAG.fullmatch(tag))
        ):
            raise _invalid(text)
        if tag is None and not at:
            tag = "latest"
        return cls(registry, repository, tag, digest if at else None)

    @property
    def familiar(self) -> str:
        """As people write it: without what is implied."""
        name = str(self)
        if self.registry == DOCKER_HUB:
            name = name.removeprefix(f"{DOCKER_HUB}/").removeprefix("library/")
        return name

    @property
    def wanted(self) -> str:
        """What a registry is asked for."""
        return self.digest or self.tag or "latest"

    def with_digest(self, digest: str) -> Reference:
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def _split_tag(name: str) -> tuple[str, str | None]:
    path, colon, tag = name.rpartition(":")
    return (path, tag) if colon and "/" not in tag else (name, None)


def _split_registry(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    registry, repository = (first, rest) if named else (DOCKER_HUB, name)
    if registry in _HUB_NAMES:
        registry = DOCKER_HUB
        repository = repository if "/" in repository else f"library/{repository}"
    return registry, repository


def _invalid(text: str) -> errors.ImageInvalid:
    return errors.ImageInvalid(
        f"{text[:200]!r} is not the name of an image. Examples: python:3.12, ghcr.io/team/app:1.0, "
        "registry.example:5000/app@sha256:…"
    )
