"""A provider of another package: named by an entry point, chosen by the settings, used through the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.providers.registry import NoProvider, default_provider
from paddock.settings import Settings
from tests.gateway.bed import running

CODE = """
from paddock.providers.local import LocalProvider

class AcmeProvider(LocalProvider):
    name = "acme"

def build(settings, clock):
    return AcmeProvider(settings.home / "acme", clock)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As pip lays it out."""
    site = tmp_path / "site"
    info = site / "acme_sandboxes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-sandboxes\nVersion: 1.0\n")
    entries = "acme = acme_sandboxes:build\nbroken = acme_sandboxes:missing\nlocal = acme_sandboxes:build\n"
    (info / "entry_points.txt").write_text(f"[paddock.providers]\n{entries}")
    (site / "acme_sandboxes.py").write_text(CODE)
    monkeypatch.syspath_prepend(site)
    return site


def test_a_provider_of_another_package_makes_sandboxes(package: Path, tmp_path: Path) -> None:
    with running(tmp_path / "home", "acme") as bed:
        box = bed.create()
        assert box.run("echo from acme") == "from acme\n"
        with bed.api() as api:
            assert api.get(f"/sandboxes/{box.sandbox_id}").json()["provider"] == "acme"


def test_one_that_cannot_be_loaded_is_told_of_with_its_package(package: Path, tmp_path: Path) -> None:
    problem = "'broken' of the package acme-sandboxes cannot be loaded"
    with pytest.raises(NoProvider, match=problem), running(tmp_path / "home", "broken"):
        pass


def test_a_package_cannot_take_a_name_of_ours(package: Path, tmp_path: Path) -> None:
    with running(tmp_path / "home", "local") as bed:
        assert bed.context.providers["local"].__class__.__name__ == "LocalProvider"


def test_an_unknown_name_is_answered_with_those_that_are_installed(package: Path) -> None:
    with pytest.raises(NoProvider, match=r"Known: .*acme"):
        default_provider(Settings(SANDBOX_PROVIDER="nobody", _env_file=None))
