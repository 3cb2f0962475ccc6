"""The add-ons ``r`` and ``java`` as their users install them, kept under ``build/`` for the next run."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import pytest

from paddock import errors
from paddock.addons import debian
from paddock.addons.addon_store import AddonStore
from paddock.addons.recipe import Recipe
from tests.e2b.environments import locked

ADDONS = Path(__file__).resolve().parents[2] / "build" / "addons-languages"


def installed(recipe: Recipe) -> Path:
    """The folder of add-ons with this one in it. Skips where Debian does not answer, or this system is none."""
    ADDONS.mkdir(parents=True, exist_ok=True)
    with locked(ADDONS / ".tests"):
        if not is_installed(recipe):
            try:
                AddonStore(ADDONS).install(recipe, lambda progress: None)
            except (errors.AddonFailed, errors.Unsupported) as problem:
                pytest.skip(f"the add-on could not be installed: {problem.message}")
            _stamp(recipe).write_text(_wanted(recipe))
    return ADDONS


def is_installed(recipe: Recipe) -> bool:
    """As the recipe would make it now."""
    stamp = _stamp(recipe)
    return (
        AddonStore(ADDONS).installed(recipe.name) is not None
        and stamp.is_file()
        and stamp.read_text() == _wanted(recipe)
    )


def _stamp(recipe: Recipe) -> Path:
    return ADDONS / f".{recipe.name}"


def _wanted(recipe: Recipe) -> str:
    sources = (Path(inspect.getfile(made)) for made in (type(recipe), debian))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
