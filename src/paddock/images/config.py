"""The configuration of an image: what its author meant for whatever runs in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock import errors
from paddock.images.manifest import MAX_LAYERS, Platform, load_json
from paddock.images.reference import check_digest


@dataclass(frozen=True, slots=True)
class ImageConfig:
    platform: Platform
    diff_ids: tuple[str, ...]
    """The digests of the uncompressed layers, the lowest first."""
    created: str = ""
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    workdir: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    healthcheck: tuple[str, ...] = ()

    @classmethod
    def read(cls, content: bytes) -> ImageConfig:
        """Raises ImageInvalid."""
        found = load_json(content, "configuration of the image")
        root = found.get("rootfs")
        diff_ids = root.get("diff_ids") if isinstance(root, dict) else None
        if not isinstance(diff_ids, list) or len(diff_ids) > MAX_LAYERS:
            raise errors.ImageInvalid("The configuration of the image does not name its layers.")
        given = found.get("config")
        config: dict[str, Any] = given if isinstance(given, dict) else {}
        health = config.get("Healthcheck")
        return cls(
            platform=Platform(*(_text(found.get(key)) for key in ("os", "architecture", "variant"))),
            diff_ids=tuple(check_digest(each) for each in diff_ids),
            created=_text(found.get("created")),
            env=tuple((name, value) for name, _, value in (one.partition("=") for one in _texts(config.get("Env")))),
            user=_text(config.get("User")),
            workdir=_text(config.get("WorkingDir")),
            entrypoint=_texts(config.get("Entrypoint")),
            cmd=_texts(config.get("Cmd")),
            exposed_ports=tuple(sorted(_mapping(config.get("ExposedPorts")))),
            labels=tuple((name, _text(value)) for name, value in _mapping(config.get("Labels")).items()),
            healthcheck=_texts(health.get("Test")) if isinstance(health, dict) else (),
        )

    def require(self, wanted: Platform) -> None:
        if (self.platform.os, self.platform.architecture) != (wanted.os, wanted.architecture):
            raise errors.ImageInvalid(
                f"The image is for {self.platform or 'an unknown platform'}, and this machine is {wanted}."
            )


def _text(found: object) -> str:
    """Without NUL, which neither a path nor an environment can have."""
    return found.replace("\0", "") if isinstance(found, str) else ""


def _texts(found: object) -> tuple[str, ...]:
    return tuple(_text(each) for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _mapping(found: object) -> dict[str, Any]:
    return {key: value for key, value in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}
