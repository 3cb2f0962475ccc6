"""Sandboxes in containers of a Docker-compatible engine: any image, nothing required of it."""

from paddock.providers.docker.provider import DockerProvider

__all__ = ["DockerProvider"]
