"""A home without a server, and registries that its ``paddock image`` may use."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Paddock
from tests.images.registry import Registry, running


@dataclass(frozen=True)
class Command(Paddock):
    """With more in its environment."""

    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return super().env | self.more


@dataclass
class ImageHome:
    """What an operator has: the command, and the settings of registries."""

    home: Path

    def allow(self, registry: Registry, **more: Any) -> None:
        path = self.home / "registries.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known[registry.name] = {"plain_http": registry.url.startswith("http:"), **more}
        path.write_text(json.dumps(known))

    def image(self, *words: str, **env: str) -> Any:
        return Command(self.home, more=env).json("image", *words)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return Command(self.home)("image", *words, check=None)

    def failure(self, *words: str, **env: str) -> dict[str, Any]:
        error: dict[str, Any] = Command(self.home, more=env).json("image", *words, check=1)["error"]
        return error

    def layer(self, diff_id: str) -> Path:
        return self.home / "images/layers" / diff_id.partition(":")[2] / "root"

    def drafts(self) -> list[str]:
        return sorted(path.name for path in (self.home / "images/drafts").iterdir())


@pytest.fixture
def images(tmp_path: Path) -> ImageHome:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return ImageHome(home)


@pytest.fixture
def registry(images: ImageHome) -> Iterator[Registry]:
    with running(Registry()) as one:
        images.allow(one)
        yield one
