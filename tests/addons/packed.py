"""A packed copy of an add-on, so that it can be installed without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.addons.cache import Cache, default_folder
from paddock.addons.recipe import BuiltAddon
from paddock.addons.vscode import VsCode

VERSION = "4.100.0"


def pack_vscode(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a cache of its own, which installers find from now on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    folder = place / "made"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/code-server").write_text(f"#!/bin/sh\necho {VERSION}\n")
    key = VsCode().cache_key
    assert key is not None
    Cache(default_folder()).pack("vscode", key, folder, BuiltAddon(VERSION, {"code-server": VERSION}))
